// The steps of each rank in a collective of ranks that access each other's arrays, computed by a
// pure function. Between two barriers each worker runs its steps, independently of the other
// workers. One of the ranks that share a GPU is the worker for all of them, because a GPU runs the
// kernels of several processes one after the other, and switching between processes takes longer
// than most kernels.
//
// Reductions are divided among the workers: worker k reduces the k-th piece of all inputs in rank
// order, and writes the result to every output that needs it. So every element is read once, is
// written once per output, and has the same bits on all ranks.
//
//   in 0  [ a | b | c | d ]    worker 0 reduces all a's, worker 1 all b's  out 0  [ A | B | C | D ]
//   in 1  [ a | b | c | d ]                                                out 1  [ A | B | C | D ]
//   ...
//
// In a collective with one part per rank, a rank's part is moved by the worker of that rank. Data
// that one rank sends to all are copied by all workers, one piece each.
//
// In-place calls are supported: a worker writes only to those elements of another rank's input that
// no other worker reads. A scan computes the result with the most contributors first.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/request.h"

namespace pc {

// One rank's arrays, by their addresses in this process. A null pointer means that the rank has no
// such array.
struct IpcArrays {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // that rank's counts, for an alltoall with uneven parts
  std::span<const uint64_t> counts = {}, recv_counts = {};
};

struct IpcStep {
  // sources: reduced in this order if `reduces` is true; otherwise a single one, which is copied
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;  // destinations, which all receive the same data
  std::size_t count = 0;       // number of elements
  bool reduces = false;
};

// The caller must have checked `request`, which is the same on all ranks. `arrays` and `workers`
// are indexed by rank; workers[r] is the rank that moves the arrays of rank r. Returns no steps if
// `rank` is not a worker.
std::vector<IpcStep> ipc_steps(const Request& request, Rank rank, std::span<const Rank> workers,
                               std::span<const IpcArrays> arrays);

}  // namespace pc
