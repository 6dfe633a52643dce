// What each rank does in a collective whose ranks reach each other's arrays: a pure function. Between two
// barriers every worker runs its steps, in any order among them. Of the ranks that share a GPU one moves for
// all: a GPU runs the kernels of several processes one after the other, and changes between them for longer
// than most of them take.
//
//   reductions are cut by worker: the k-th reduces the k-th piece of all inputs, in the order of ranks, and
//   writes it wherever it is wanted, so every element is read once, written once per output, and has the same
//   bits on all ranks
//
//       in 0  [ a | b | c | d ]     worker 0 reduces all a's, worker 1 all b's, ...      out 0  [ A | B | C | D ]
//       in 1  [ a | b | c | d ]                                                        out 1  [ A | B | C | D ]
//       ...
//
//   parts are written by who moves for the rank that has them; what one rank has for all is copied by all
//   workers, a piece each
//
// In place is fine: what a rank writes into another's input is what nobody else reads. A scan begins with who gets the most.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/request.h"

namespace pc {

// One rank's arrays, where this rank reaches them. Null: it has none.
struct IpcArrays {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::span<const uint64_t> counts = {}, recv_counts = {};  // of an alltoall with uneven parts, its own
};

struct IpcStep {
  std::vector<const std::byte*> from;  // several, or one: reduced in this order. Else one: copied
  std::vector<std::byte*> to;          // all get the same
  std::size_t count = 0;               // elements
  bool reduces = false;
};

// `request` has been checked, and is the same on all ranks; `arrays` by rank, and `workers`: who moves for
// it. None, if that is another.
std::vector<IpcStep> ipc_steps(const Request& request, Rank rank, std::span<const Rank> workers,
                               std::span<const IpcArrays> arrays);

}  // namespace pc
