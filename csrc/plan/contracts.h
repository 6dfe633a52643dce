// What each collective promises, in fingerprints instead of data: which arrays a rank has, what they hold
// before, what the output must hold afterwards. Independent of any algorithm.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace pc {

// Which of the caller's arrays exist on this rank.
bool has_input(const Shape& shape);
bool has_output(const Shape& shape);

// Stands for the data of one chunk. Every (rank, chunk) has a random word; reducing adds words mod 2^64 and
// counts contributions. So a missing, doubled or misplaced contribution shows. Memory nobody has written holds
// a random count too.
struct Fingerprint {
  uint64_t word = 0;
  uint64_t contributions = 0;
  bool operator==(const Fingerprint&) const = default;
};
Fingerprint operator+(const Fingerprint& a, const Fingerprint& b);

Fingerprint contribution(Rank rank, uint32_t chunk);  // of this rank's input
Fingerprint never_written(Rank rank, Area area, uint32_t chunk);
// Of the output where has_output(); every rank that has one gets the same.
Fingerprint wanted_output(const Shape& shape, uint32_t chunk);
// True if no rank may end before every rank has begun: the promise of a barrier.
bool synchronizes(Collective collective);
bool moves_data(Collective collective);

}  // namespace pc
