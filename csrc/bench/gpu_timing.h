// Times calls that are queued on a GPU's stream, as nccl-tests does: many in line, and one wait at their end.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bench/gpu.h"
#include "bench/gpu_options.h"

namespace pc::bench {

// Puts the next iteration on the stream.
using Queue = std::function<Status()>;

// Something that puts so many iterations on the stream at once: one, by queueing it, or as a graph that has them.
struct Batch {
  Queue queue;
  uint64_t iterations = 1;
};
// `in_graph`: as a graph of so many; 0: one, without a graph.
Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t in_graph);
// Waits after each for the GPU and for the other ranks.
Queue one_by_one(const Gpu& gpu, Communicator& group, Queue one);

// What a turn took.
struct Turn {
  int64_t until_queued_ns = 0, until_done_ns = 0;
  uint64_t iterations = 0;
  std::vector<int64_t> host_ns = {};  // how long each run of the batch kept the host
  uint64_t iterations_per_run = 1;
};
// Runs `batch` so often. The ranks begin together.
Result<Turn> time_turn(const Gpu& gpu, Communicator& group, const Batch& batch, uint64_t times);

// One iteration, in seconds; over all ranks, as `average` says.
struct PerIteration {
  double until_queued_s = 0, until_done_s = 0;
  std::vector<double> turns_s = {};       // until done, on average over each turn
  double host_p50_s = 0, host_p99_s = 0;  // of the host's time for single runs of the batch
};
// All ranks had the same turns.
Result<PerIteration> average_over_ranks(Communicator& group, std::span<const Turn> turns, Average average);
// Of the turns, from 0 to 1. By nearest rank, so a time that was measured.
double percentile_s(const PerIteration& time, double share);

// How long the driver's own copy of `nbytes` takes from one array of this GPU to another, in seconds.
Result<double> time_copy(const Gpu& gpu, Communicator& group, uint64_t nbytes);

}  // namespace pc::bench
