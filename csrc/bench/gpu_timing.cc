#include "bench/gpu_timing.h"

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "cuda/graph.h"

namespace pc::bench {
namespace {

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

Status repeat(const Queue& one, uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) PC_TRY(one());
  return Status::ok();
}

}  // namespace

Result<Batch> batch_of(const Gpu& gpu, Queue one, uint64_t iterations, bool as_graph) {
  if (!as_graph)
    return Batch{[one = std::move(one), iterations] { return repeat(one, iterations); }, iterations};
  PC_ASSIGN_OR_RETURN(cuda::Graph captured, cuda::Graph::capture(gpu.context(), gpu.stream(),
                                                                 [&] { return repeat(one, iterations); }));
  const auto graph = std::make_shared<const cuda::Graph>(std::move(captured));
  return Batch{[graph, &gpu] { return graph->launch(gpu.stream()); }, iterations};
}

Queue one_by_one(const Gpu& gpu, Communicator& group, Queue one) {
  return [&gpu, &group, one = std::move(one)] {
    PC_TRY(one());
    PC_TRY(gpu.drain(group));
    return group.run(Request{});
  };
}

Status add_time(const Gpu& gpu, Communicator& group, const Batch& batch, uint64_t times, Spent& spent) {
  PC_TRY(group.run(Request{}));
  const int64_t began = now_ns();
  PC_TRY(repeat(batch.queue, times));
  const int64_t queued = now_ns();
  PC_TRY(gpu.drain(group));
  spent.until_done_ns += now_ns() - began;
  spent.until_queued_ns += queued - began;
  spent.iterations += times * batch.iterations;
  return Status::ok();
}

Result<PerIteration> average_over_ranks(Communicator& group, const Spent& spent, Average average) {
  std::array<int64_t, 2> times = {spent.until_queued_ns, spent.until_done_ns};
  if (average == Average::kRank0 && group.rank() != 0) times = {0, 0};
  Request request;
  request.collective = Collective::kAllreduce;
  request.out = {reinterpret_cast<std::byte*>(times.data()), times.size(), DType::kI64};
  request.in = request.out;
  request.op = average == Average::kLeast  ? ReduceOp::kMin
               : average == Average::kMost ? ReduceOp::kMax
                                           : ReduceOp::kSum;
  PC_TRY(group.run(request));
  const double of = static_cast<double>(spent.iterations) * (average == Average::kMean ? group.size() : 1);
  const auto seconds = [of](int64_t ns) { return static_cast<double>(ns) / of / 1e9; };
  return PerIteration{seconds(times[0]), seconds(times[1])};
}

}  // namespace pc::bench
