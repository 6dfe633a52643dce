#include "gpu/staging/staged_calls.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/round_up.h"
#include "base/start_thread.h"
#include "comm/arguments.h"
#include "comm/run_call.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/copy.h"
#include "gpu/cuda/host_wait.h"
#include "gpu/staging/device_arguments.h"
#include "gpu/staging/device_pieces.h"

namespace pc {
namespace {

// The interval at which copies to the GPU are polled.
constexpr std::chrono::milliseconds kCopiesRound{1};

// Offsets of the input and the output in one block of host memory. There they overlap in the same
// way as the arrays on the GPU.
struct HostBlock {
  std::size_t in = 0, out = 0, nbytes = 0;
};
HostBlock block_for(const UserCall& call) {
  constexpr std::size_t kAlignment = 64;  // keeps every element aligned
  const ConstBuffer& in = call.request.in;
  const Buffer& out = call.request.out;
  const std::size_t in_nbytes = in.nbytes(), out_nbytes = out.nbytes();
  const bool is_elementwise =
      call.kind == UserCall::Kind::kCollective && call.request.collective == Collective::kAllreduce;
  const std::less_equal<const std::byte*> ordered;
  if (!is_there(in) || !is_there(out) || in.list != nullptr || in.data == out.data || is_elementwise)
    return {0, 0, std::max(in_nbytes, out_nbytes)};
  if (ordered(out.data, in.data) && ordered(in.data + in_nbytes, out.data + out_nbytes))
    return {static_cast<std::size_t>(in.data - out.data), 0, out_nbytes};
  if (ordered(in.data, out.data) && ordered(out.data + out_nbytes, in.data + in_nbytes))
    return {0, static_cast<std::size_t>(out.data - in.data), in_nbytes};
  const std::size_t behind = round_up(out_nbytes, kAlignment);
  return {behind, 0, behind + in_nbytes};
}

bool reads_output(const UserCall& call) {
  return call.kind == UserCall::Kind::kCollective && reads_output(call.request);
}
bool writes_output(const UserCall& call, Rank rank) {
  if (call.kind != UserCall::Kind::kCollective) return call.kind != UserCall::Kind::kSend;
  return writes_output(call.request, rank);
}

}  // namespace

struct StagedCalls::Staging {
  cuda::PinnedPool::Lease memory;
  UserCall call;   // the same call, with its arrays in `memory`
  Buffer results;  // the array on the GPU that receives the output; absent if nothing is written
  // Copies of what `call` and `results` refer to, because the caller may destroy the originals
  // while the call runs.
  std::unique_ptr<const IoVec> list = {};
  std::vector<uint64_t> counts = {}, recv_counts = {};
};

// A call that continues after begin() has returned. Thread-safety: all methods.
class StagedCalls::Call final : public GpuWork {
 public:
  Call(std::shared_ptr<StagedCalls> calls, Staging staging, std::shared_ptr<const void> keeps)
      : calls_(calls),
        staging_(std::move(staging)),
        keeps_(std::move(keeps)) {}

  std::optional<Status> precede(const WaitContext& context, void* stream) override {
    const std::shared_ptr<StagedCalls> calls = calls_.lock();
    if (calls == nullptr) return closed();
    const std::optional<Status> in_flight = until_in_flight(*calls, context.deadline);
    if (!in_flight || !in_flight->is_ok()) return in_flight;
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, calls->context_.enter());
    const std::lock_guard lock(mutex_);
    if (end_ == nullptr) return Status::ok();
    return cuda::stream_waits(calls->context_.driver(), static_cast<cuda::CUstream>(stream), end_);
  }

  Status until_ended(Deadline deadline) override {
    if (ended_well()) return Status::ok();
    const std::shared_ptr<StagedCalls> calls = calls_.lock();
    if (calls == nullptr) return closed();
    const std::optional<Status> in_flight = until_in_flight(*calls, deadline);
    if (!in_flight) return Status(Code::kTimeout, "the call has not ended on the CPU");
    PC_TRY(*in_flight);
    const Deadline wait_limit = calls->wait_limit();
    const bool is_last = deadline.when() >= wait_limit.when();
    const Status ended =
        calls->until_back(staging_.call, is_last ? wait_limit : deadline, [&] { return reached(*calls); });
    if (ended.is_ok() || (ended.code() == Code::kTimeout && is_last)) end(ended);
    return ended;
  }

  bool done() const override {
    if (outcome()) return true;
    const std::shared_ptr<StagedCalls> calls = calls_.lock();
    if (calls == nullptr) return true;
    const std::lock_guard lock(mutex_);
    if (!came_back_) return false;
    const Result<bool> reached = copies_reached(*calls);
    return !failure_.is_ok() || !reached.is_ok() || reached.value();
  }
  void detach() override { on_cpu_->detach(); }

 private:
  friend class StagedCalls;
  Status closed() const {
    const std::optional<Status> outcome = on_cpu_->outcome();
    return outcome && !outcome->is_ok() ? *outcome
                                        : Status(Code::kNotInitialized, "the group of this call was closed");
  }
  // Waits until the call has ended on the CPU and its copies back are queued, and returns the
  // outcome so far. Returns none if the context ends the wait first. If it returns an error while
  // outcome() is empty, the wait was refused, and the call continues.
  std::optional<Status> until_in_flight(StagedCalls& calls, Deadline deadline) {
    const std::optional<Status> ended = on_cpu_->wait(calls.group_.waiting_until(deadline));
    if (!ended || !on_cpu_->outcome()) return ended;
    const std::optional<Status> in_flight = come_back(calls);
    if (in_flight && !in_flight->is_ok()) end(*in_flight);
    return in_flight;
  }
  // If the call has ended on the CPU, queues the copies back and returns the outcome so far.
  // Otherwise returns none.
  std::optional<Status> come_back(StagedCalls& calls) {
    const std::lock_guard lock(mutex_);
    if (came_back_) return failure_;
    const std::optional<Status> outcome = on_cpu_->outcome();
    if (!outcome) return std::nullopt;
    came_back_ = true;
    failure_ = *outcome;
    if (failure_.is_ok() && is_there(staging_.results)) {
      const Result<cuda::CUevent> queued = calls.queue_copies_back(staging_, calls.stream_.get());
      failure_ = queued.status();
      if (queued.is_ok()) end_ = queued.value();
    }
    return failure_;
  }
  Result<bool> reached(const StagedCalls& calls) const {
    const std::lock_guard lock(mutex_);
    return copies_reached(calls);
  }
  Result<bool> copies_reached(const StagedCalls& calls) const {  // requires mutex_
    if (end_ == nullptr) return came_back_;
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, calls.context_.enter());
    return cuda::is_reached(calls.context_.driver(), end_);
  }

  const std::weak_ptr<StagedCalls> calls_;
  Staging staging_;                            // written only by come_back()
  std::shared_ptr<const void> keeps_;          // used only by the watcher
  std::function<void(const Status&)> on_end_;  // used only by the watcher
  mutable std::mutex mutex_;                   // guards the members below
  bool came_back_ = false;
  Status failure_;
  cuda::CUevent end_ = nullptr;  // recorded after the copies back; owned by staging_; null: there are none
};

Result<std::shared_ptr<StagedCalls>> StagedCalls::create(Communicator& group,
                                                         const std::shared_ptr<const cuda::Driver>& driver,
                                                         int device, double wait_limit_s) {
  PC_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::primary(driver, device));
  PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
  return std::shared_ptr<StagedCalls>(
      new StagedCalls(group, std::move(context), std::move(stream), wait_limit_s));
}

StagedCalls::StagedCalls(Communicator& group, cuda::Context context, cuda::Stream stream, double wait_limit_s)
    : group_(group),
      wait_limit_s_(wait_limit_s),
      context_(std::move(context)),
      stream_(std::move(stream)),
      events_(context_),
      pinned_(context_) {}

StagedCalls::~StagedCalls() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  for (const std::shared_ptr<Call>& each : running_) {
    each->end(Status(Code::kNotInitialized, "the group of this call was closed"));
    if (each->on_end_) each->on_end_(each->outcome().value_or(Status::ok()));
  }
}

Status StagedCalls::check(UserCall& call) const {
  PC_TRY(check_on_gpu(call, context_.ordinal(), group_));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(const bool captured,
                      cuda::is_capturing(context_.driver(), cuda::stream_of(call.request)));
  if (!captured) return Status::ok();
  return Status(
      Code::kUnsupported,
      "this call goes through the host, so it cannot be captured into a CUDA graph: make it outside");
}

Status StagedCalls::run(const UserCall& call, double timeout_s) {
  UserCall checked = call;
  PC_TRY(check(checked));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const Deadline deadline = Deadline::after(seconds);
  const cuda::CUstream stream = cuda::stream_of(checked.request);
  PC_ASSIGN_OR_RETURN(Staging staging, to_host(checked, stream, group_.waiting_until(deadline)));
  PC_TRY(run_call(group_, staging.call, std::max(deadline.remaining_s(), 0.0)));
  if (!is_there(staging.results)) return Status::ok();
  PC_ASSIGN_OR_RETURN(const cuda::CUevent end, queue_copies_back(staging, stream));
  return until_back(checked, wait_limit(), [&]() -> Result<bool> {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
    return cuda::is_reached(context_.driver(), end);
  });
}

Result<std::shared_ptr<GpuWork>> StagedCalls::begin(const UserCall& call, double timeout_s,
                                                    std::function<void(const Status&)> on_end) {
  UserCall checked = call;
  PC_TRY(check(checked));
  PC_ASSIGN_OR_RETURN(const double seconds, check_timeout(timeout_s, group_.timeout_s()));
  const Deadline deadline = Deadline::after(seconds);
  {
    const std::lock_guard lock(mutex_);
    PC_TRY(start_watching());
  }
  {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
    PC_ASSIGN_OR_RETURN(const cuda::EventPool::Lease made, events_.take());
    const cuda::CUstream theirs = cuda::stream_of(checked.request);
    PC_TRY(cuda::record(context_.driver(), made.get(), theirs));
    PC_TRY(cuda::stream_waits(context_.driver(), stream_.get(), made.get()));
  }
  PC_ASSIGN_OR_RETURN(Staging staging, to_host(checked, stream_.get(), group_.waiting_until(deadline)));
  const auto started = std::make_shared<Call>(shared_from_this(), std::move(staging), call.keeps);
  started->on_end_ = std::move(on_end);
  // The callback keeps `started` alive, and so its host memory, until the call has ended.
  const auto ended = [started, weak = weak_from_this()](const Status&) {
    const std::shared_ptr<StagedCalls> calls = weak.lock();
    if (calls == nullptr) return;
    {
      const std::lock_guard lock(calls->mutex_);
      calls->news_ = true;
    }
    calls->changed_.notify_all();
  };
  PC_ASSIGN_OR_RETURN(started->on_cpu_, begin_call(group_, started->staging_.call,
                                                   {std::max(deadline.remaining_s(), 0.0), ended}));
  started->operation_ = started->on_cpu_->operation();
  {
    const std::lock_guard lock(mutex_);
    running_.push_back(started);
    news_ = true;  // the call may have ended before it was added to running_
  }
  changed_.notify_all();
  return std::shared_ptr<GpuWork>(started);
}

Status StagedCalls::reserve(const UserCall& call) {
  PC_TRY(events_.reserve(2));  // for the copies out and back
  return pinned_.take(block_for(call).nbytes).status();
}

Result<StagedCalls::Staging> StagedCalls::to_host(const UserCall& call, cuda::CUstream stream,
                                                  const WaitContext& context) {
  const HostBlock block = block_for(call);
  PC_ASSIGN_OR_RETURN(cuda::PinnedPool::Lease memory, pinned_.take(block.nbytes));
  std::byte* const begin = memory.bytes().data();
  Staging staging{std::move(memory), call, {}};
  Request& request = staging.call.request;
  if (writes_output(call, group_.rank())) staging.results = request.out;
  if (staging.results.list != nullptr) {
    staging.list = std::make_unique<const IoVec>(*staging.results.list);
    staging.results.list = staging.list.get();
  }
  const auto keep = [](std::vector<uint64_t>& kept, std::span<const uint64_t>& counts) {
    kept.assign(counts.begin(), counts.end());
    counts = kept;
  };
  keep(staging.counts, request.counts);
  keep(staging.recv_counts, request.recv_counts);
  const auto move = [&](auto& buffer, std::size_t place) {
    if (is_there(buffer)) buffer.data = begin + place;
    buffer.list = nullptr;
    buffer.device = {};
  };
  move(request.in, block.in);
  move(request.out, block.out);
  request.stream = {};
  staging.call.keeps = nullptr;  // held by Call, or by the caller of run()
  PC_TRY(queue_copies_out(call, staging, stream));
  const Result<WaitEnd> read =
      cuda::wait_on_host([&]() -> Result<bool> { return staging.memory.is_free(); }, {context});
  PC_TRY(settled(read, call, "what makes its array has not ended on the GPU"));
  return staging;
}

Status StagedCalls::queue_copies_out(const UserCall& call, Staging& staging, cuda::CUstream stream) {
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(cuda::EventPool::Lease end, events_.take());
  const auto copy_to = [&](const std::byte* place) {
    return [this, stream, to = const_cast<std::byte*>(place)](cuda::CUdeviceptr from, std::size_t begin,
                                                              std::size_t nbytes) {
      return cuda::copy_to_host(context_.driver(), {to + begin, nbytes}, from, stream);
    };
  };
  const Request& there = call.request;
  const Request& here = staging.call.request;
  Status queued = each_piece(there.in, copy_to(here.in.data));
  if (queued.is_ok() && reads_output(call) && here.out.data != here.in.data)
    queued = each_piece(there.out, copy_to(here.out.data));
  const Status recorded = cuda::record(context_.driver(), end.get(), stream);
  staging.memory.busy_until(std::move(end));
  return queued.is_ok() ? recorded : queued;
}

Result<cuda::CUevent> StagedCalls::queue_copies_back(Staging& staging, cuda::CUstream stream) {
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context_.enter());
  PC_ASSIGN_OR_RETURN(cuda::EventPool::Lease end, events_.take());
  const std::byte* const from = staging.call.request.out.data;
  const Status queued =
      each_piece(staging.results, [&](cuda::CUdeviceptr to, std::size_t begin, std::size_t nbytes) {
        return cuda::copy_to_device(context_.driver(), to, {from + begin, nbytes}, stream);
      });
  const Status recorded = cuda::record(context_.driver(), end.get(), stream);
  const cuda::CUevent event = end.get();
  staging.memory.busy_until(std::move(end));
  PC_TRY(queued);
  PC_TRY(recorded);
  return event;
}

Status StagedCalls::until_back(const UserCall& call, Deadline deadline,
                               const std::function<Result<bool>()>& reached) {
  return settled(cuda::wait_on_host(reached, {group_.waiting_until(deadline)}), call,
                 "its result has not reached the GPU");
}

// Converts the end of a wait for this GPU into a status. `what` is the message for a timeout.
Status StagedCalls::settled(const Result<WaitEnd>& end, const UserCall& call, const char* what) {
  PC_TRY(end.status());
  switch (end.value()) {
    case WaitEnd::kReady: return Status::ok();
    case WaitEnd::kAborted: return group_.alive();
    case WaitEnd::kInterrupted: return Status(Code::kInterrupted, "interrupted");
    case WaitEnd::kTimeout: break;
  }
  return Status(Code::kTimeout, what).with_operation(call.name()).with_rank(group_.rank());
}

Status StagedCalls::start_watching() {
  if (watcher_.joinable()) return Status::ok();
  return start_thread(watcher_, "pc-gpu-stage", "starting the thread that copies results to the GPU",
                      [this] { watch(); });
}

void StagedCalls::watch() {
  std::unique_lock lock(mutex_);
  for (bool copies = false; !stopping_;) {
    const auto called = [this] { return news_ || stopping_; };
    if (copies) {
      changed_.wait_for(lock, kCopiesRound, called);
    } else {
      changed_.wait(lock, called);
    }
    news_ = false;
    lock.unlock();
    copies = look_at_calls();
    lock.lock();
  }
}

// Advances the running calls. Returns true if results are still being copied to the GPU. Such
// copies must be polled, because nothing notifies the host of their end.
bool StagedCalls::look_at_calls() {
  std::vector<std::shared_ptr<Call>> running, ended;
  {
    const std::lock_guard lock(mutex_);
    running = running_;
  }
  bool copies = false;
  for (const std::shared_ptr<Call>& each : running) {
    const std::optional<Status> back = each->come_back(*this);
    if (!back) continue;
    const Result<bool> reached = each->reached(*this);
    if (back->is_ok() && reached.is_ok() && !reached.value()) {
      copies = true;
      continue;
    }
    const Status outcome = back->is_ok() ? reached.status() : *back;
    each->end(outcome);
    ended.push_back(each);
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(running_, [&](const std::shared_ptr<Call>& each) {
      return std::find(ended.begin(), ended.end(), each) != ended.end();
    });
  }
  for (const std::shared_ptr<Call>& each : ended) {
    each->keeps_ = nullptr;
    if (each->on_end_) each->on_end_(each->outcome().value_or(Status::ok()));
  }
  return copies;
}

Status StagedCalls::close(double timeout_s) {
  std::vector<std::shared_ptr<Call>> running;
  {
    const std::lock_guard lock(mutex_);
    running = running_;
  }
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  Status first;
  for (const std::shared_ptr<Call>& each : running) {
    // if true, a wait has returned the outcome, or the watcher has recorded it
    const bool was_known = each->outcome().has_value();
    const Status ended = each->until_ended(deadline);
    if (first.is_ok() && !was_known) first = ended;
  }
  return first;
}

}  // namespace pc
