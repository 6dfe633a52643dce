// Times calls that are queued on a GPU's stream, as nccl-tests does: many calls in a row, with one
// wait at the end.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "bench/gpu.h"
#include "bench/measure.h"

namespace pc::bench {

// Queues the next iteration on the stream.
using Queue = std::function<Status()>;

// Each call of `queue` puts `iterations` iterations on the stream: a single one, or a graph of
// several. `queue` is called `runs` times.
struct Batch {
  Queue queue;
  uint64_t iterations = 1, runs = 1;
};
// `graph_launches` is how often a graph of all iterations is launched; 0 means no graph.
Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t iterations, uint64_t graph_launches);

// The times of some runs of a batch.
struct TimedRound {
  int64_t ns = 0;                // from the start until the last run has ended
  std::vector<int64_t> host_ns;  // how long each run kept the host busy
};
// Times `runs` calls of `queue`. All ranks of the group begin together.
Result<TimedRound> time_round(const Gpu& gpu, const Queue& queue, uint64_t runs);
// Computes the times of one call from the rounds and combines those of all ranks. `calls` is the
// number of calls in each run. All ranks must have the same number of rounds, with the same number
// of runs.
Result<Times> average_over_ranks(Communicator& group, std::span<const TimedRound> rounds, uint64_t calls,
                                 Average average);

// Returns how long the driver's own copy of `nbytes` takes from one array of this GPU to another,
// in seconds.
Result<double> time_driver_copy(const Gpu& gpu, uint64_t nbytes);

}  // namespace pc::bench
