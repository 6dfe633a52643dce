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
};
// Runs `batch` so often. The ranks begin together.
Result<Turn> time_turn(const Gpu& gpu, Communicator& group, const Batch& batch, uint64_t times);

// One iteration, in seconds; over all ranks, as `average` says.
struct PerIteration {
  double until_queued_s = 0, until_done_s = 0;
  std::vector<double> turns_s = {};  // until done, on average over each turn
};
// All ranks had the same turns.
Result<PerIteration> average_over_ranks(Communicator& group, std::span<const Turn> turns, Average average);
// Of the turns. By nearest rank, so a time that was measured.
double median_s(const PerIteration& time);

}  // namespace pc::bench
