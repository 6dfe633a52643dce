// What each collective promises, in fingerprints instead of data: which arrays a rank has, what they hold
// before, what the output must hold afterwards. Independent of any algorithm.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace pc {

// Chunks have names that mean the same on all ranks:
//   allreduce, broadcast, reduce, scan, exscan     the pieces of the array
//   allgather, gather, reduce_scatter, scatter     part p, which belongs to rank p, is p * split ... p * split + split - 1
//   alltoall                                       what rank i has for rank j is i * size + j
// Which of them an array of the caller's holds, in the order of its memory: first, first + stride, ...
struct Held {
  uint32_t first = 0, count = 0, stride = 1;
  bool has(Chunks names) const;  // several only where they are local peers
  uint32_t place(uint32_t name) const { return (name - first) / stride; }
  uint32_t name(uint32_t place) const { return first + place * stride; }
};
Held held(const Shape& shape, uint32_t chunks,
          Area area);  // of kInput or kOutput; count 0: there is no such array
bool has_input(const Shape& shape);
bool has_output(const Shape& shape);
// What both hold: the executor copies it before step 0, and in place it is the same memory.
Chunks shared_chunks(const Shape& shape, uint32_t chunks);

bool is_rooted(Collective collective);
bool reduces(Collective collective);
// What a rank gets is combined from some of the ranks alone, from others than elsewhere.
bool is_scan(Collective collective);
bool moves_data(Collective collective);
// Its array has one part per rank, so that parts may differ in size.
bool has_parts(Collective collective);
// A rank that is alone gets nothing, and its output stays as it was.
bool leaves_output(Collective collective);
// Input and output may be the same array, or one a part of the other.
bool in_place(Collective collective);
// True if no rank may end before every rank has begun: the promise of a barrier.
bool synchronizes(Collective collective);
// How many chunks an array has that is cut as the shape says.
bool right_chunks(const Shape& shape, uint32_t chunks);
// All chunks have exactly one size, so that several of them lie in scratch without gaps.
bool packs(const Shape& shape);

// Stands for the data of one chunk. Every (rank, chunk) has a random word; reducing adds words mod 2^64 and
// counts contributions. So a missing, doubled or misplaced contribution shows. Memory nobody has written holds
// a random count too.
struct Fingerprint {
  uint64_t word = 0;
  uint64_t contributions = 0;
  bool operator==(const Fingerprint&) const = default;
};
Fingerprint operator+(const Fingerprint& a, const Fingerprint& b);

// Whose contributions a chunk of the output must hold at the end.
struct Contributors {
  Rank from = 0, to = 0;  // [from, to)
  bool has(Rank rank) const { return from <= rank && rank < to; }
  bool operator==(const Contributors&) const = default;
};
Contributors contributors(const Shape& shape, uint32_t chunks, uint32_t name);

Fingerprint contribution(Rank rank, uint32_t chunk);  // of this rank's input
Fingerprint never_written(Rank rank, Area area, uint32_t chunk);
// What the chunk of that place holds before step 0, and, of the output, what it must hold at the end.
Fingerprint first_input(const Shape& shape, uint32_t chunks, uint32_t place);
Fingerprint first_output(const Shape& shape, uint32_t chunks, uint32_t place);
Fingerprint wanted_output(const Shape& shape, uint32_t chunks, uint32_t place);

}  // namespace pc
