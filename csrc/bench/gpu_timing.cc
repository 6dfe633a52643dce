#include "bench/gpu_timing.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "bench/allreduce.h"
#include "bench/latencies.h"
#include "gpu/cuda/copy.h"
#include "gpu/cuda/graph.h"
#include "gpu/cuda/memory.h"

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
  std::vector<int64_t> ends;
  ends.reserve(times + 1);
  PC_TRY(group.run(Request{}));
  ends.push_back(now_ns());
  for (uint64_t i = 0; i < times; ++i) {
    PC_TRY(batch.queue());
    ends.push_back(now_ns());
  }
  PC_TRY(gpu.drain(group));
  const int64_t done = now_ns();
  return Turn{ends.back() - ends.front(), done - ends.front(), times * batch.iterations, differences(ends),
              batch.iterations};
}

Result<PerIteration> average_over_ranks(Communicator& group, std::span<const Turn> turns, Average average) {
  std::vector<int64_t> times = {0, 0};  // until queued and until done, in all; until done, in each turn
  std::vector<int64_t> host;
  uint64_t iterations = 0;
  for (const Turn& each : turns) {
    times[0] += each.until_queued_ns;
    times[1] += each.until_done_ns;
    times.push_back(each.until_done_ns);
    iterations += each.iterations;
    host.insert(host.end(), each.host_ns.begin(), each.host_ns.end());
  }
  times.push_back(percentile(host, 0.50));
  times.push_back(percentile(host, 0.99));
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
  const uint64_t per_run = turns.front().iterations_per_run;
  result.host_p50_s = seconds(times[times.size() - 2], per_run);
  result.host_p99_s = seconds(times.back(), per_run);
  return result;
}

double percentile_s(const PerIteration& time, double share) { return percentile(time.turns_s, share); }

Result<double> time_copy(const Gpu& gpu, Communicator& group, uint64_t nbytes) {
  constexpr uint64_t kTimes = 10;
  PC_ASSIGN_OR_RETURN(const cuda::DeviceMemory from, cuda::DeviceMemory::allocate(gpu.context(), nbytes));
  PC_ASSIGN_OR_RETURN(const cuda::DeviceMemory to, cuda::DeviceMemory::allocate(gpu.context(), nbytes));
  const Queue copy = [&] {
    return cuda::copy_on_device(gpu.driver_of(), to.at(), from.at(), nbytes, gpu.stream());
  };
  PC_TRY(copy());
  PC_TRY(gpu.drain(group));
  const int64_t began = now_ns();
  PC_TRY(repeat(copy, kTimes));
  PC_TRY(gpu.drain(group));
  return static_cast<double>(now_ns() - began) / kTimes / 1e9;
}

}  // namespace pc::bench
