// Times calls that are queued on a GPU's stream, as nccl-tests does: many in line, and one wait at their end.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bench/gpu.h"
#include "bench/measure.h"

namespace pc::bench {

// Puts the next iteration on the stream.
using Queue = std::function<Status()>;

// What puts so many iterations on the stream at once, one or a graph of them, and how often it does.
struct Batch {
  Queue queue;
  uint64_t iterations = 1, runs = 1;
};
// `graph_launches`: of a graph of all iterations; 0: without one.
Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t iterations, uint64_t graph_launches);

// What some runs of a batch took.
struct TimedRound {
  int64_t ns = 0;                // until the last has ended
  std::vector<int64_t> host_ns;  // how long each kept the host
};
// The ranks begin together.
Result<TimedRound> time_round(const Gpu& gpu, const Queue& queue, uint64_t runs);
// All ranks had the same rounds, with so many calls in each run.
Result<Times> average_over_ranks(Communicator& group, std::span<const TimedRound> rounds, uint64_t calls,
                                 Average average);

// How long the driver's own copy of `nbytes` takes from one array of this GPU to another, in seconds.
Result<double> time_driver_copy(const Gpu& gpu, uint64_t nbytes);

}  // namespace pc::bench
