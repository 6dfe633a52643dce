// The contract of each collective, in fingerprints instead of data: which arrays a rank has, what
// they hold before the call, and what the output must hold afterwards. It is independent of any
// algorithm.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace pc {

// Chunks have names that mean the same on all ranks:
//
//   allreduce, broadcast, reduce, scan, exscan     the pieces of the array
//   allgather, gather, reduce_scatter, scatter     part p, which belongs to rank p, is chunks
//                                                  p * split ... p * split + split - 1
//   alltoall                                       what rank i has for rank j is chunk i * size + j
//
// Held lists the names of the chunks in one of the caller's arrays, in memory order: first, first +
// stride, ...
struct Held {
  uint32_t first = 0, count = 0, stride = 1;
  bool has(Chunks names) const;  // with a stride above 1, true for single chunks only
  uint32_t place(uint32_t name) const { return (name - first) / stride; }
  uint32_t name(uint32_t place) const { return first + place * stride; }
};
// `area` is kInput or kOutput. The count of the result is 0 if there is no such array.
Held held(const Shape& shape, uint32_t chunks, Area area);
bool has_input(const Shape& shape);
bool has_output(const Shape& shape);
// Returns the chunks that both input and output hold. Before step 0 the executor copies them from
// the input to the output, unless the call is in place: there input and output are the same memory.
Chunks shared_chunks(const Shape& shape, uint32_t chunks);

bool is_rooted(Collective collective);
bool reduces(Collective collective);
// Returns true if each rank's result combines the contributions of only some ranks, which differ
// from rank to rank.
bool is_scan(Collective collective);
bool moves_data(Collective collective);
// Returns true if the array has one part per rank. Parts may differ in size.
bool has_parts(Collective collective);
// Returns true if a rank that is alone in its group receives nothing, so that its output stays
// unchanged.
bool leaves_output(Collective collective);
// Returns true if input and output may be the same array, or one may be a part of the other.
bool in_place(Collective collective);
// Returns true if no rank may end before every rank has begun, which is the promise of a barrier.
bool synchronizes(Collective collective);
// Returns true if an array that is cut according to the shape has `chunks` chunks.
bool right_chunks(const Shape& shape, uint32_t chunks);
// Returns true if all chunks have exactly the same size, so that several of them fit in scratch
// without gaps.
bool packs(const Shape& shape);

// Represents the data of one chunk. Every (rank, chunk) has a random word. A reduction adds words
// mod 2^64 and counts contributions, so a missing, doubled or misplaced contribution changes the
// result. Memory that was never written has a random count as well.
struct Fingerprint {
  uint64_t word = 0;
  uint64_t contributions = 0;
  bool operator==(const Fingerprint&) const = default;
};
Fingerprint operator+(const Fingerprint& a, const Fingerprint& b);

// The ranks that must have contributed to a chunk of the output at the end.
struct Contributors {
  Rank from = 0, to = 0;  // [from, to)
  bool has(Rank rank) const { return from <= rank && rank < to; }
  bool operator==(const Contributors&) const = default;
};
Contributors contributors(const Shape& shape, uint32_t chunks, uint32_t name);

Fingerprint contribution(Rank rank, uint32_t chunk);  // of this rank's input
Fingerprint never_written(Rank rank, Area area, uint32_t chunk);
// What the chunk at `place` of the input or the output holds before step 0, and what the chunk at
// `place` of the output must hold at the end.
Fingerprint first_input(const Shape& shape, uint32_t chunks, uint32_t place);
Fingerprint first_output(const Shape& shape, uint32_t chunks, uint32_t place);
Fingerprint wanted_output(const Shape& shape, uint32_t chunks, uint32_t place);

}  // namespace pc
