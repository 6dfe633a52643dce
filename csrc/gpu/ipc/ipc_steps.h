// The steps of each rank in a collective of ranks that access each other's arrays: a pure function.
// Between two barriers every worker runs its steps, in any order. One of the ranks that share a GPU
// moves the arrays for all of them: a GPU runs the kernels of several processes one after the
// other, and switching between processes takes longer than most kernels.
//
// Reductions are cut by worker: the k-th reduces the k-th piece of all inputs in rank order, and
// writes it to every output that needs it. So every element is read once, is written once per
// output, and has the same bits on all ranks.
//
//   in 0  [ a | b | c | d ]    worker 0 reduces all a's, worker 1 all b's  out 0  [ A | B | C | D ]
//   in 1  [ a | b | c | d ]                                                out 1  [ A | B | C | D ]
//   ...
//
// The parts of a rank are written by its worker. Data that one rank has for all are copied by all
// workers, a piece each.
//
// In-place calls are supported: a rank writes only to those places of another's input that no other
// rank reads. A scan computes the result with the most contributors first.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/request.h"

namespace pc {

// One rank's arrays, at their addresses in this process. Null: it has none.
struct IpcArrays {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // the rank's own, for an alltoall with uneven parts
  std::span<const uint64_t> counts = {}, recv_counts = {};
};

struct IpcStep {
  // if it reduces: one or more, reduced in this order; otherwise one, which is copied
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;  // all receive the same data
  std::size_t count = 0;       // elements
  bool reduces = false;
};

// `request` must have been checked, and be the same on all ranks. `arrays` and `workers` are
// indexed by rank; workers[r] is the rank that moves arrays for r. Returns no steps if `rank` is no
// worker.
std::vector<IpcStep> ipc_steps(const Request& request, Rank rank, std::span<const Rank> workers,
                               std::span<const IpcArrays> arrays);

}  // namespace pc
