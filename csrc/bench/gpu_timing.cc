#include "bench/gpu_timing.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "bench/allreduce.h"
#include "bench/latencies.h"
#include "cuda/graph.h"

namespace pc::bench {
namespace {

Status repeat(const Queue& one, uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) PC_TRY(one());
  return Status::ok();
}

}  // namespace

Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t in_graph) {
  if (in_graph == 0) return Batch{std::move(one), 1};
  PC_ASSIGN_OR_RETURN(cuda::Graph captured, cuda::Graph::capture(gpu.context(), gpu.stream(),
                                                                 [&] { return repeat(one, in_graph); }));
  const auto graph = std::make_shared<const cuda::Graph>(std::move(captured));
  return Batch{[graph, &gpu] { return graph->launch(gpu.stream()); }, in_graph};
}

Queue one_by_one(const Gpu& gpu, Communicator& group, Queue one) {
  return [&gpu, &group, one = std::move(one)] {
    PC_TRY(one());
    PC_TRY(gpu.drain(group));
    return group.run(Request{});
  };
}

Result<Turn> time_turn(const Gpu& gpu, Communicator& group, const Batch& batch, uint64_t times) {
  PC_TRY(group.run(Request{}));
  const int64_t began = now_ns();
  PC_TRY(repeat(batch.queue, times));
  const int64_t queued = now_ns();
  PC_TRY(gpu.drain(group));
  return Turn{queued - began, now_ns() - began, times * batch.iterations};
}

Result<PerIteration> average_over_ranks(Communicator& group, std::span<const Turn> turns, Average average) {
  std::vector<int64_t> times = {0, 0};  // until queued and until done, in all; until done, in each turn
  uint64_t iterations = 0;
  for (const Turn& each : turns) {
    times[0] += each.until_queued_ns;
    times[1] += each.until_done_ns;
    times.push_back(each.until_done_ns);
    iterations += each.iterations;
  }
  if (average == Average::kRank0 && group.rank() != 0) times.assign(times.size(), 0);
  const ReduceOp op = average == Average::kLeast  ? ReduceOp::kMin
                      : average == Average::kMost ? ReduceOp::kMax
                                                  : ReduceOp::kSum;
  PC_TRY(allreduce(group, times, op));
  const int ranks = average == Average::kMean ? group.size() : 1;
  const auto seconds = [ranks](int64_t ns, uint64_t of) {
    return static_cast<double>(ns) / (static_cast<double>(of) * ranks) / 1e9;
  };
  PerIteration result{seconds(times[0], iterations), seconds(times[1], iterations)};
  for (std::size_t i = 0; i < turns.size(); ++i)
    result.turns_s.push_back(seconds(times[2 + i], turns[i].iterations));
  return result;
}

double median_s(const PerIteration& time) { return percentile(time.turns_s, 0.5); }

}  // namespace pc::bench
