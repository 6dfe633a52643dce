#include "bench/measure_on_gpu.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/scattered.h"
#include "bench/allreduce.h"
#include "bench/gpu_arrays.h"

namespace pc::bench {
namespace {

constexpr uint64_t kTurns = 10;  // in which ours and NCCL's own calls are timed, at most

// The arrays that a call takes: one pair, or several as a list.
struct Taken {
  std::vector<Arrays> each;
  Scattered list;
};

std::shared_ptr<const Taken> taken(const GpuArrays& arrays) {
  const auto made = std::make_shared<Taken>();
  for (uint64_t i = 0; i < arrays.copies(); ++i) {
    made->each.push_back(arrays.copy(i));
    made->list.add(made->each.back().out.data, made->each.back().out.nbytes());
  }
  return made;
}

Request request_of(const Case& what, const Taken& arrays, cuda::CUstream stream) {
  const Arrays& first = arrays.each.front();
  Request request = bench::request_of(*what.operation->collective, {what.op, what.root.value_or(0)}, first);
  request.stream = stream;
  if (arrays.each.size() == 1) return request;
  Buffer all = first.out;
  all.data = nullptr;
  all.count *= arrays.each.size();
  all.list = &arrays.list;
  request.in = request.out = all;
  request.bundle = static_cast<uint64_t>(arrays.each.size()) << 32;
  return request;
}

// Calls `with(root)`; without a fixed root the next call has the next.
template <class With>
Queue with_roots(const Case& what, Rank size, With with) {
  return [with = std::move(with), root = what.root.value_or(0), rotates = !what.root, size]() mutable {
    const Status status = with(root);
    if (rotates) root = (root + 1) % size;
    return status;
  };
}

// There and back between two ranks.
Queue our_messages(const GpuStage& stage, const std::shared_ptr<const Taken>& arrays) {
  const Rank rank = stage.group.rank(), mate = mate_of(rank, stage.group.size());
  if (mate == rank) return [] { return Status::ok(); };
  const Arrays& pair = arrays->each.front();
  CallOnGpu sent, received;
  for (CallOnGpu* const each : {&sent, &received}) {
    each->keeps = arrays;
    each->call.request.root = mate;
    each->call.request.stream = stage.gpu.stream();
  }
  sent.call.kind = UserCall::Kind::kSend;
  sent.call.request.in = rank < mate ? pair.in : pair.out;
  received.call.kind = UserCall::Kind::kRecv;
  received.call.request.out = pair.out;
  return [&messages = *stage.messages, first = rank < mate ? sent : received,
          second = rank < mate ? received : sent]() -> Status {
    PC_TRY(messages.run(first, -1, true));
    return messages.run(second, -1, true);
  };
}

Queue ours(const GpuStage& stage, const Case& what, const std::shared_ptr<const Taken>& arrays) {
  if (!what.operation->collective) return our_messages(stage, arrays);
  CallOnGpu call;
  call.call.request = request_of(what, *arrays, stage.gpu.stream());
  call.keeps = arrays;
  return with_roots(what, stage.group.size(), [&way = stage.way, call](Rank root) mutable {
    call.call.request.root = root;
    return way.run(call, -1, true);
  });
}

Queue nccls_own(const GpuStage& stage, const Case& what, const std::shared_ptr<const Taken>& arrays) {
  return with_roots(what, stage.group.size(),
                    [raw = stage.raw, what, arrays, stream = stage.gpu.stream()](Rank root) {
                      return raw->queue(what, root, arrays->each, stream);
                    });
}

// What is timed: so many runs of a batch.
struct Timed {
  Batch batch;
  uint64_t runs = 1;
};

Result<Timed> timed(const GpuStage& stage, Queue one, const Effort& effort) {
  const GpuOptions& options = stage.options;
  if (options.blocking) one = one_by_one(stage.gpu, stage.group, std::move(one));
  const bool as_graph = options.graph_launches != 0;
  PC_ASSIGN_OR_RETURN(Batch batch, batch_of(stage.gpu, std::move(one), as_graph ? effort.iterations : 0));
  return Timed{std::move(batch), as_graph ? options.graph_launches : effort.iterations};
}

Status settle(const GpuStage& stage) {
  return stage.gpus != nullptr ? stage.gpus->settle(-1) : stage.way.settle(-1);
}

// Even, so that ours come first as often as NCCL's own. One run cannot be parted.
uint64_t turns_of(uint64_t runs) { return runs == 1 ? 1 : std::min(kTurns, runs - runs % 2); }

// Those of `runs` that are in this turn.
uint64_t share_of(uint64_t runs, uint64_t turn, uint64_t turns) {
  return runs * (turn + 1) / turns - runs * turn / turns;
}

// Of each side.
struct Turns {
  std::vector<Turn> ours, raw;
};

// `raw`: null if nothing is compared. Each turn begins when nothing is left of those before: what looks after our calls would
// do so in NCCL's time.
Result<Turns> time_in_turns(const GpuStage& stage, const Timed& ours, const Timed* raw) {
  Turns took;
  const uint64_t turns = raw == nullptr ? 1 : turns_of(ours.runs);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    for (const bool second : {false, true}) {
      const bool is_raw = second != (turn % 2 == 1);
      if (is_raw && raw == nullptr) continue;
      if (raw != nullptr) PC_TRY(settle(stage));
      PC_ASSIGN_OR_RETURN(const Turn time, time_turn(stage.gpu, stage.group, is_raw ? raw->batch : ours.batch,
                                                     share_of(ours.runs, turn, turns)));
      (is_raw ? took.raw : took.ours).push_back(time);
    }
  }
  return took;
}

PerIteration per_call(PerIteration time, uint64_t calls) {
  const double n = static_cast<double>(calls);
  time.until_queued_s /= n;
  time.until_done_s /= n;
  time.host_p50_s /= n;
  time.host_p99_s /= n;
  for (double& each : time.turns_s) each /= n;
  return time;
}

// At least one: the first call of a size makes what the others find.
Status warm_up(const GpuStage& stage, const Queue& one, const Effort& effort) {
  for (uint64_t i = 0; i < std::max<uint64_t>(effort.warm_up, 1); ++i) PC_TRY(one());
  return stage.gpu.drain(stage.group);
}

Status time_half(const GpuStage& stage, const Case& what, const std::shared_ptr<const Taken>& arrays,
                 const Effort& effort, GpuHalf& half) {
  const Queue own = ours(stage, what, arrays);
  const Queue raw = stage.raw == nullptr ? Queue() : nccls_own(stage, what, arrays);
  PC_TRY(warm_up(stage, own, effort));
  PC_ASSIGN_OR_RETURN(const Timed first, timed(stage, own, effort));
  std::optional<Timed> second;
  if (raw) {
    PC_TRY(settle(stage));
    PC_TRY(warm_up(stage, raw, effort));
    PC_ASSIGN_OR_RETURN(second, timed(stage, raw, effort));
  }
  PC_ASSIGN_OR_RETURN(const Turns took, time_in_turns(stage, first, second ? &*second : nullptr));
  const uint64_t calls = stage.options.aggregated * static_cast<uint64_t>(what.operation->trips);
  PC_ASSIGN_OR_RETURN(half.time, average_over_ranks(stage.group, took.ours, stage.options.average));
  half.time = per_call(half.time, calls);
  if (!raw) return Status::ok();
  PC_ASSIGN_OR_RETURN(half.raw, average_over_ranks(stage.group, took.raw, stage.options.average));
  half.raw = per_call(*half.raw, calls);
  return Status::ok();
}

// Whose calls: ours or nccls_own.
using QueueOf = Queue (*)(const GpuStage&, const Case&, const std::shared_ptr<const Taken>&);

// Wrong elements over all ranks, after one call as it was timed for each root to verify.
Result<uint64_t> count_wrong_on_gpus(const GpuStage& stage, Case what, QueueOf queue_of,
                                     const std::shared_ptr<const Taken>& taken, GpuArrays& arrays) {
  int64_t wrong = 0;
  for (const Rank root : roots_to_verify(what, stage.group.size())) {
    what.root = root;
    const Asked asked = {what.op, root};
    PC_TRY(arrays.fill(stage.group, asked));
    PC_ASSIGN_OR_RETURN(const Batch one, batch_of(stage.gpu, queue_of(stage, what, taken),
                                                  stage.options.graph_launches != 0 ? 1 : 0));
    PC_TRY(one.queue());
    PC_TRY(stage.gpu.drain(stage.group));
    PC_ASSIGN_OR_RETURN(const uint64_t here, arrays.count_wrong(stage.group, asked));
    wrong += static_cast<int64_t>(here);
  }
  PC_TRY(allreduce(stage.group, {&wrong, 1}, ReduceOp::kSum));
  return static_cast<uint64_t>(wrong);
}

Result<GpuHalf> measure_half(const GpuStage& stage, const Case& what, uint64_t count, const Effort& effort) {
  const Rank rank = stage.group.rank(), size = stage.group.size();
  PC_ASSIGN_OR_RETURN(ArrayMemory host,
                      ArrayMemory::create({what.operation, what.dtype, what.in_place, count, rank, size}));
  PC_ASSIGN_OR_RETURN(GpuArrays arrays, GpuArrays::create(stage.gpu, host, stage.options.aggregated));
  const std::shared_ptr<const Taken> all = taken(arrays);
  GpuHalf half;
  PC_TRY(arrays.clear(stage.group));  // sums of zeros stay zeros, however often
  PC_TRY(time_half(stage, what, all, effort, half));
  if (effort.checks) {
    PC_ASSIGN_OR_RETURN(half.wrong, count_wrong_on_gpus(stage, what, ours, all, arrays));
  }
  if (effort.checks && stage.raw != nullptr) {
    PC_ASSIGN_OR_RETURN(half.raw_wrong, count_wrong_on_gpus(stage, what, nccls_own, all, arrays));
  }
  arrays.may_go();
  return half;
}

// In seconds, on rank 0; the other ranks, which may share its GPU, wait until it is done.
Result<double> time_copy_alone(const GpuStage& stage, uint64_t nbytes) {
  double seconds = 0;
  PC_TRY(stage.group.run(Request{}));
  if (stage.group.rank() == 0) {
    PC_ASSIGN_OR_RETURN(seconds, time_copy(stage.gpu, stage.group, nbytes));
  }
  PC_TRY(stage.group.run(Request{}));
  return seconds;
}

}  // namespace

Route route_of(const GpuStage& stage, const Case& what) {
  if (stage.options.way == GpuWay::kStaged) return {"staged", Status(Code::kUnsupported, "--way staged")};
  UserCall call;
  call.request.collective = what.operation->collective.value_or(Collective::kBroadcast);  // message_line.h
  call.request.op = what.op;
  call.request.in.dtype = call.request.out.dtype = what.dtype;
  return {stage.way.way_of(call), stage.way.by_nccl(call)};
}

Result<GpuRow> measure_on_gpu(const GpuStage& stage, const Case& what, uint64_t nbytes,
                              const Effort& effort) {
  const Rank size = stage.group.size();
  const uint64_t parts = static_cast<uint64_t>(what.operation->parts(size).most());
  GpuRow row;
  row.what = what;
  row.iterations = effort.iterations;
  row.count = std::max<uint64_t>(1, nbytes / size_of(what.dtype) / parts);
  row.nbytes = row.count * parts * size_of(what.dtype);
  for (const bool in_place : {false, true}) {
    const bool wanted = in_place ? stage.options.in_place && what.operation->in_place
                                 : stage.options.out_of_place && stage.options.aggregated == 1;
    if (!wanted) continue;
    Case half = what;
    half.in_place = in_place;
    PC_ASSIGN_OR_RETURN(GpuHalf measured, measure_half(stage, half, row.count, effort));
    measured.algbw = static_cast<double>(row.nbytes) / measured.time.until_done_s / 1e9;
    measured.busbw = measured.algbw * what.operation->bus_factor(size);
    (in_place ? row.in_place : row.out_of_place) = measured;
  }
  if (stage.options.copy) {
    PC_ASSIGN_OR_RETURN(row.copy_s, time_copy_alone(stage, row.nbytes));
  }
  return row;
}

}  // namespace pc::bench
