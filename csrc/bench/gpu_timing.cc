#include "bench/gpu_timing.h"

#include <memory>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "bench/groups.h"
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

Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t iterations, uint64_t graph_launches) {
  if (graph_launches == 0) return Batch{std::move(one), 1, iterations};
  PC_ASSIGN_OR_RETURN(cuda::Graph captured, cuda::Graph::capture(gpu.context(), gpu.stream(),
                                                                 [&] { return repeat(one, iterations); }));
  const auto graph = std::make_shared<const cuda::Graph>(std::move(captured));
  return Batch{[graph, &gpu] { return graph->launch(gpu.stream()); }, iterations, graph_launches};
}

Result<TimedRound> time_round(const Gpu& gpu, const Queue& queue, uint64_t runs) {
  std::vector<int64_t> ends;
  ends.reserve(runs + 1);
  PC_TRY(gpu.group().run(Request{}));
  ends.push_back(now_ns());
  for (uint64_t i = 0; i < runs; ++i) {
    PC_TRY(queue());
    ends.push_back(now_ns());
  }
  PC_TRY(gpu.drain());
  return TimedRound{now_ns() - ends.front(), differences(ends)};
}

Result<Times> average_over_ranks(Communicator& group, std::span<const TimedRound> rounds, uint64_t calls,
                                 Average average) {
  // `host` has the host times of all runs. `times` has the time of each round, then the two totals
  // and the percentiles of the host times.
  std::vector<int64_t> host, times;
  for (const TimedRound& each : rounds) {
    host.insert(host.end(), each.host_ns.begin(), each.host_ns.end());
    times.push_back(each.ns);
  }
  const auto sum = [](const std::vector<int64_t>& all) {
    return std::accumulate(all.begin(), all.end(), int64_t{0});
  };
  const std::vector<int64_t> in_all = {sum(times), sum(host), percentile(host, 0.50), percentile(host, 0.99)};
  times.insert(times.end(), in_all.begin(), in_all.end());
  if (average == Average::kRank0 && group.rank() != 0) times.assign(times.size(), 0);
  const ReduceOp op = average == Average::kLeast  ? ReduceOp::kMin
                      : average == Average::kMost ? ReduceOp::kMax
                                                  : ReduceOp::kSum;
  PC_TRY(allreduce(group, times, op));
  const std::size_t ranks = average == Average::kMean ? static_cast<std::size_t>(group.size()) : 1;
  const auto per_call_s = [&](int64_t ns, std::size_t runs) {
    return static_cast<double>(ns) / static_cast<double>(runs * ranks * calls) / 1e9;
  };
  const int64_t* const total = times.data() + rounds.size();
  Times result;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    result.rounds_s.push_back(per_call_s(times[i], rounds[i].host_ns.size()));
  result.done = {per_call_s(total[0], host.size()), percentile(result.rounds_s, 0.50),
                 percentile(result.rounds_s, 0.99)};
  result.queued = {per_call_s(total[1], host.size()), per_call_s(total[2], 1), per_call_s(total[3], 1)};
  return result;
}

Result<double> time_driver_copy(const Gpu& gpu, uint64_t nbytes) {
  constexpr uint64_t kTimes = 10;
  PC_ASSIGN_OR_RETURN(const cuda::DeviceMemory from, cuda::DeviceMemory::allocate(gpu.context(), nbytes));
  PC_ASSIGN_OR_RETURN(const cuda::DeviceMemory to, cuda::DeviceMemory::allocate(gpu.context(), nbytes));
  const Queue copy = [&] {
    return cuda::copy_on_device(gpu.driver_of(), to.at(), from.at(), nbytes, gpu.stream());
  };
  PC_TRY(copy());
  PC_TRY(gpu.drain());
  const int64_t began = now_ns();
  PC_TRY(repeat(copy, kTimes));
  PC_TRY(gpu.drain());
  return static_cast<double>(now_ns() - began) / kTimes / 1e9;
}

}  // namespace pc::bench
