#include "bench/gpu_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/io_vec.h"
#include "bench/gpu_arrays.h"
#include "bench/gpu_timing.h"

namespace pc::bench {
namespace {

constexpr uint64_t kRounds = 10;  // at most; each round times both pycollective's calls and NCCL's own

// Returns an even number, so that pycollective's calls are first as often as NCCL's own. A single
// run cannot be divided into rounds.
uint64_t rounds_of(uint64_t runs) { return runs == 1 ? 1 : std::min(kRounds, runs - runs % 2); }

// The arrays that a call takes: one pair, or several as a list.
struct Taken {
  std::vector<Arrays> each;
  IoVec list;
};

std::shared_ptr<const Taken> taken(const GpuArrays& arrays) {
  const auto made = std::make_shared<Taken>();
  for (uint64_t i = 0; i < arrays.copies(); ++i) {
    made->each.push_back(arrays.copy(i));
    made->list.add(made->each.back().out.data, made->each.back().out.nbytes());
  }
  return made;
}

class GpuCalls final : public Calls {
 public:
  GpuCalls(const GpuStage& stage, const Case& what, GpuArrays arrays)
      : stage_(stage),
        what_(what),
        arrays_(std::move(arrays)),
        taken_(taken(arrays_)) {}

  // After a failure the calls may still be queued and use the arrays, so their memory is kept.
  Status time(const Effort& effort, Half& half) override {
    const Status timed = time_both(effort, half);
    if (!timed.is_ok()) leak();
    return timed;
  }
  Result<uint64_t> count_wrong(const Asked& asked, bool raw) override {
    const Result<uint64_t> wrong = run_and_count(asked, raw);
    if (!wrong.is_ok()) leak();
    return wrong;
  }

 private:
  void leak() {
    arrays_.leak();
    static_cast<void>(new std::shared_ptr<const Taken>(taken_));
  }

  // ---- what is queued

  Request request() const {
    const Arrays& first = taken_->each.front();
    Request request = request_of(*what_.operation->collective, {what_.op, 0}, first);
    request.stream = stage_.gpu.stream();
    if (taken_->each.size() == 1) return request;
    Buffer all = first.out;
    all.data = nullptr;
    all.count *= taken_->each.size();
    all.list = &taken_->list;
    request.in = request.out = all;
    request.bundle = static_cast<uint64_t>(taken_->each.size()) << 32;
    return request;
  }

  // Returns a function that queues one round trip between two ranks.
  Queue messages() const {
    const Rank rank = stage_.gpu.group().rank(), mate = mate_of(rank, stage_.gpu.group().size());
    if (mate == rank) return [] { return Status::ok(); };
    const Arrays& pair = taken_->each.front();
    OutgoingMessage sent{rank < mate ? pair.in : ConstBuffer(pair.out), mate};
    IncomingMessage received{pair.out, mate};
    sent.stream = received.stream = stage_.gpu.stream();
    return [&group = stage_.gpu.group(), sent, received, first = rank < mate]() -> Status {
      if (first) PC_TRY(group.send(sent));
      PC_TRY(group.recv(received));
      return first ? Status::ok() : group.send(sent);
    };
  }

  // Returns a function that queues one call of pycollective, or of NCCL if `raw` is set. The call
  // has the given root, or another root each time if none is given.
  Queue queue_of(std::optional<Rank> root, bool raw) const {
    if (!raw && !what_.operation->collective) return messages();
    return [this, call = raw ? Request() : request(), raw, next = root.value_or(0),
            step = root ? 0 : 1]() mutable {
      call.root = next;
      next = (next + step) % stage_.gpu.group().size();
      if (!raw) return stage_.gpu.group().run(call);
      return stage_.raw->queue(what_, call.root, taken_->each, stage_.gpu.stream());
    };
  }

  // ---- how it is timed

  // Makes at least one warm-up call, because the first call of a size creates what later calls use.
  Result<Batch> warmed_up(bool raw, const Effort& effort) const {
    Queue one = queue_of(what_.root, raw);
    for (uint64_t i = 0; i < std::max<uint64_t>(effort.warm_up, 1); ++i) PC_TRY(one());
    PC_TRY(stage_.gpu.drain());
    if (stage_.options.blocking) {
      one = [&gpu = stage_.gpu, one = std::move(one)] {
        PC_TRY(one());
        PC_TRY(gpu.drain());
        return gpu.group().run(Request{});
      };
    }
    return batch_of(stage_.gpu, std::move(one), effort.iterations, stage_.options.graph_launches);
  }

  // Waits until pycollective's calls have ended and are no longer monitored, because monitoring
  // would disturb NCCL's times.
  Status settle() const { return stage_.devices.settle(-1); }

  Result<Times> averaged(const std::vector<TimedRound>& rounds, const Batch& batch) const {
    const uint64_t trips = static_cast<uint64_t>(what_.operation->trips);
    return average_over_ranks(stage_.gpu.group(), rounds,
                              batch.iterations * stage_.options.aggregated * trips, stage_.options.average);
  }

  Status time_both(const Effort& effort, Half& half) const {
    PC_ASSIGN_OR_RETURN(const Batch ours, warmed_up(false, effort));
    if (stage_.raw == nullptr) {
      PC_ASSIGN_OR_RETURN(const TimedRound round, time_round(stage_.gpu, ours.queue, ours.runs));
      PC_ASSIGN_OR_RETURN(half.time, averaged({round}, ours));
      return Status::ok();
    }
    PC_TRY(settle());
    PC_ASSIGN_OR_RETURN(const Batch raw, warmed_up(true, effort));
    std::vector<TimedRound> of_ours, of_raw;
    const uint64_t rounds = rounds_of(ours.runs);
    for (uint64_t round = 0; round < rounds; ++round) {
      const uint64_t runs = ours.runs * (round + 1) / rounds - ours.runs * round / rounds;
      for (const bool second : {false, true}) {
        const bool is_raw = second != (round % 2 == 1);
        PC_TRY(settle());
        PC_ASSIGN_OR_RETURN(TimedRound took, time_round(stage_.gpu, (is_raw ? raw : ours).queue, runs));
        (is_raw ? of_raw : of_ours).push_back(std::move(took));
      }
    }
    PC_ASSIGN_OR_RETURN(half.time, averaged(of_ours, ours));
    PC_ASSIGN_OR_RETURN(half.raw, averaged(of_raw, raw));
    return Status::ok();
  }

  // ---- how it is verified

  Result<uint64_t> run_and_count(const Asked& asked, bool raw) {
    PC_TRY(arrays_.fill(asked));
    const uint64_t launches = stage_.options.graph_launches != 0 ? 1 : 0;
    PC_ASSIGN_OR_RETURN(const Batch one, batch_of(stage_.gpu, queue_of(asked.root, raw), 1, launches));
    PC_TRY(one.queue());
    PC_TRY(stage_.gpu.drain());
    return arrays_.count_wrong(asked);
  }

  const GpuStage& stage_;
  const Case what_;
  GpuArrays arrays_;
  const std::shared_ptr<const Taken> taken_;
};

class GpuDevice final : public MeasuredDevice {
 public:
  explicit GpuDevice(const GpuStage& stage) : MeasuredDevice(stage.gpu.group()), stage_(stage) {}

  Result<Route> route_of(const Case& what) const override {
    const Options& options = stage_.options;
    if (options.backend == GpuBackend::kStaged)
      return Route{"staged", Status(Code::kUnsupported, "--way staged")};
    UserCall call;
    // messages have the path of a broadcast; see p2p_channel.h
    call.request.collective = what.operation->collective.value_or(Collective::kBroadcast);
    call.request.op = what.op;
    call.request.in.dtype = call.request.out.dtype = what.dtype;
    const Route route = stage_.devices.route_of(group(), call);
    if (route.by_nccl.is_ok() || (!options.raw && options.graph_launches == 0)) return route;
    const std::string needs =
        options.raw ? "--raw compares with NCCL" : "-G: what goes into a CUDA graph goes by NCCL";
    return Status(Code::kUnsupported,
                  needs + ", and this call does not go there: " + route.by_nccl.message());
  }

  Result<std::unique_ptr<Calls>> prepare(const Case& what, const ArrayKind& kind) override {
    PC_ASSIGN_OR_RETURN(GpuArrays arrays, GpuArrays::create(stage_.gpu, kind, stage_.options.aggregated));
    return std::unique_ptr<Calls>(std::make_unique<GpuCalls>(stage_, what, std::move(arrays)));
  }

  // The other ranks, which may share rank 0's GPU, wait until the copy is done.
  Result<std::optional<double>> time_copy(uint64_t nbytes) override {
    if (!stage_.options.copy) return std::optional<double>();
    double seconds = 0;
    PC_TRY(group().run(Request{}));
    if (group().rank() == 0) {
      PC_ASSIGN_OR_RETURN(seconds, time_driver_copy(stage_.gpu, nbytes));
    }
    PC_TRY(group().run(Request{}));
    return std::optional<double>(seconds);
  }

 private:
  const GpuStage stage_;
};

}  // namespace

std::unique_ptr<MeasuredDevice> gpu_device(const GpuStage& stage) {
  return std::make_unique<GpuDevice>(stage);
}

}  // namespace pc::bench
