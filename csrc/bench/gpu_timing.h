// Times calls that are queued on a GPU's stream, as nccl-tests does: many in line, and one wait at their end.
#pragma once

#include <functional>

#include "bench/gpu.h"
#include "bench/gpu_options.h"

namespace pc::bench {

// Puts the next iteration on the stream.
using Queue = std::function<Status()>;

// Something that puts so many iterations on the stream at once: by queueing them, or as a graph that has them.
struct Batch {
  Queue queue;
  uint64_t iterations = 1;
};
Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t iterations, bool as_graph);
// Waits after each for the GPU and for the other ranks.
Queue one_by_one(const Gpu& gpu, Communicator& group, Queue one);

struct Spent {
  int64_t until_queued_ns = 0, until_done_ns = 0;
  uint64_t iterations = 0;
};
// Runs `batch` so often and adds what that took. The ranks begin together.
Status add_time(const Gpu& gpu, Communicator& group, const Batch& batch, uint64_t times, Spent& spent);

// One iteration, in seconds; over all ranks, as `average` says.
struct PerIteration {
  double until_queued_s = 0, until_done_s = 0;
};
Result<PerIteration> average_over_ranks(Communicator& group, const Spent& spent, Average average);

}  // namespace pc::bench
