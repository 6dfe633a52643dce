#include "gpu/device_calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "base/start_thread.h"
#include "gpu/staging/device_arguments.h"
#include "operation/async_work.h"

namespace pc {
namespace {

constexpr const char* kNotInTime = "it has not ended on the GPU in time, though all ranks have made it";
constexpr const char* kNotQueued =
    "this rank was still queueing it on the GPU when its time was over, though all ranks have made it";
// The interval at which running calls are polled. The short interval applies while a caller waits
// to be notified of the end of a call.
constexpr std::chrono::milliseconds kRound{10}, kShortRound{1};
// The driver is considered unresponsive once one query of the poller lasts for so many rounds of
// the watcher. A time limit would be wrong, because the whole process may be stopped for some time.
constexpr int kOverdueRounds = 5;
constexpr auto kNever = std::chrono::milliseconds::max();

// The failure that ends a group after Ctrl-C has interrupted one of its calls on the GPU.
Status interrupted(const std::string& operation) {
  return Status(Code::kAborted, "a call of this group on a GPU was interrupted on this rank: " + operation);
}

const Algorithm& algorithm_of(Collective collective, const cuda::DeviceExecutor& by) {
  static const auto kNccl = algorithms_without_plan("nccl", "NCCL, on arrays of GPUs", "docs/gpu.md", false);
  static const auto kPeers = algorithms_without_plan(
      "peers", "ranks that reach each other's arrays on one GPU", "docs/gpu.md", /*fixed_order=*/false);
  return (by.name() == "nccl" ? kNccl : kPeers)[static_cast<std::size_t>(collective)];
}

}  // namespace

// Thread-safety: all methods.
class DeviceCalls::Call : public GpuWork {
 public:
  std::optional<Status> precede(const WaitContext& context, void* stream) override;
  bool precedes_at_once() const override { return in_stream_order_ || done(); }
  Status until_ended(Deadline deadline) override;
  bool done() const override { return is_queued() && on_gpu_->done() && compared().has_value(); }
  void detach() override {
    detached_ = true;
    report_if_unobserved();
  }

 private:
  friend class DeviceCalls;
  Call() = default;
  // Returns the outcome of the comparison, if it has ended.
  std::optional<Status> compared() const {
    return on_cpu_ == nullptr ? std::optional(Status::ok()) : on_cpu_->outcome();
  }
  void end(const Status& outcome) {  // a captured call that succeeds ends with its graph
    if (!outcome.is_ok() || !is_queued() || !on_gpu_->in_graph()) GpuWork::end(outcome);
  }
  // Sets the outcome of a call that has succeeded or was refused; neither affects other calls.
  void end_by_itself() {
    const Status how =
        is_queued() && on_gpu_->is_refused() ? on_gpu_->outcome().value_or(Status::ok()) : Status::ok();
    end(how.is_ok() ? how : how.with_operation(operation_));
    report_if_unobserved();
  }
  // If no caller waits for a refused call, passes its error to the group, so that the group's next
  // call returns the error. Other errors end the group, so later calls return them anyway.
  void report_if_unobserved() {
    const std::optional<Status> outcome = this->outcome();
    if (!detached_ || !outcome || outcome->is_ok() || !is_queued() || !on_gpu_->is_refused()) return;
    const std::shared_ptr<DeviceCalls> calls = calls_.lock();
    if (calls != nullptr && !observed_.exchange(true)) calls->group_.unobserved(*outcome);
  }
  void report() {
    if (on_end_ && is_queued() && !on_gpu_->in_graph()) on_end_(outcome().value_or(Status::ok()));
  }
  bool is_queued() const { return queued_.load(std::memory_order_acquire); }
  bool may_be_stuck() const { return !is_queued() && now() - began() > kRound; }
  const pthread_t thread_ = ::pthread_self();
  std::atomic<bool> queued_{false};           // while false, its thread may be stuck inside NCCL
  std::shared_ptr<cuda::DeviceWork> on_gpu_;  // set before queued_ becomes true
  Deadline deadline_{TimePoint::max()};
  Deadline last_{TimePoint::max()};  // deadline_ extended by DeviceExecutor::grace_s()
  TimePoint due_{TimePoint::max()};  // last_ by the clock of DeviceCalls; when it passes, the call is ended
  std::weak_ptr<DeviceCalls> calls_;
  std::atomic<bool> detached_{false}, observed_{false};
  bool in_stream_order_ = true;
  // set before the call is in running_; called by the thread that removes the call from there
  std::function<void(const Status&)> on_end_;
};

DeviceCalls::DeviceCalls(Communicator& group, const Resources& resources,
                         std::unique_ptr<cuda::DeviceExecutor> executor)
    : group_(group),
      device_(resources.device),
      strict_(resources.strict),
      clock_(*resources.clock),
      interrupted_(resources.interrupted),
      wait_limit_(resources.wait_limit),
      log_(resources.log),
      executor_(std::move(executor)),
      agreed_(std::make_shared<AgreedCalls>(executor_->agreed())) {
  const std::lock_guard lock(mutex_);  // makes the threads wait until the constructor has ended
  failure_ =
      start_thread(watcher_, "pc-gpu-watch", "starting the watcher of calls on GPUs", [this] { watch(); });
  watcher_ended_ = !failure_.is_ok();
  if (failure_.is_ok())
    failure_ =
        start_thread(poller_, "pc-gpu-poll", "starting the poller of calls on GPUs", [this] { poll(); });
  poller_ended_ = !failure_.is_ok();
}

DeviceCalls::~DeviceCalls() {
  ask_threads_to_stop();
  if (watcher_.joinable()) watcher_.join();
  if (poller_.joinable()) poller_.join();
  if (failure_.is_ok()) failure_ = Status(Code::kNotInitialized, "the group of this call was closed");
  for (const std::shared_ptr<Call>& each : running_) {
    each->end(failure_);
    each->report();
  }
}

void DeviceCalls::ask_threads_to_stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (std::condition_variable* each : {&poll_now_, &watch_now_, &settled_}) each->notify_all();
}

// The poller may be blocked in a driver that does not respond even after an abort. Then it is
// detached, and this object is kept alive for it. The group and the clock may be destroyed: the
// poller does not use them again, because failure_ is set.
void DeviceCalls::stop_threads() {
  const std::lock_guard stop_lock(stop_mutex_);
  if (!watcher_.joinable()) return;
  ask_threads_to_stop();
  std::unique_lock lock(mutex_);
  // the watcher's abort returns in bounded time
  settled_.wait(lock, [this] { return watcher_ended_; });
  const bool ended = settled_.wait_for(lock, wait_limit_, [this] { return poller_ended_; });
  if (!ended) {
    if (failure_.is_ok())
      failure_ = Status(Code::kTimeout, "the GPU's driver does not answer, so this group cannot be closed");
    kept_ = shared_from_this();
  }
  lock.unlock();
  watcher_.join();
  if (!poller_.joinable()) return;
  if (ended) return poller_.join();
  poller_.detach();
  log_.warning("the GPU's driver does not answer: the thread that polls it is left behind");
}

std::vector<std::shared_ptr<DeviceCalls::Call>> DeviceCalls::running() const {
  const std::lock_guard lock(mutex_);
  return {running_.begin(), running_.end()};
}

// Checks the request, and converts it into the form that executors expect.
Status DeviceCalls::check(Request& request) const {
  UserCall call;
  call.request = request;
  PC_TRY(check_on_gpu(call, device_, group_));
  request = call.request;
  return executor_->can(request);
}

Result<std::shared_ptr<GpuWork>> DeviceCalls::launch(const cuda::DeviceCall& call, double timeout_s,
                                                     std::function<void(const Status&)> on_end) {
  PC_TRY(first_failure());
  cuda::DeviceCall checked = call;
  PC_TRY(check(checked.request));
  const double seconds = timeout_s < 0 ? group_.timeout_s() : timeout_s;
  struct Made : Call {};  // lets make_shared() use the private constructor
  const std::shared_ptr<Call> started = std::make_shared<Made>();
  started->deadline_ = Deadline::after(seconds, started->began());
  started->last_ = Deadline::after(executor_->grace_s(), started->deadline_.when());
  started->due_ = Deadline::after(seconds + executor_->grace_s(), clock_.now()).when();
  started->calls_ = weak_from_this();
  started->in_stream_order_ = executor_->in_stream_order();
  const Result<FifoLock::Held> held = issue_order_.take(group_, started->deadline_);
  if (!held.is_ok()) return not_made(held.status());
  PC_TRY(executor_->ready(checked));  // what ready() reserves belongs to this call until the lock is released
  if (const Status begun = begin_comparison(checked, *started); !begun.is_ok()) return not_made(begun);
  if (started->on_cpu_ != nullptr) started->operation_ = started->on_cpu_->operation();
  if (strict_ || checked.is_captured) PC_TRY(all_have_made(*started));
  PC_TRY(queue(checked, started, std::move(on_end)));
  return std::shared_ptr<GpuWork>(started);
}

// Returns the error of a call that could not begin: the failure of an ended group, or else `why`.
Status DeviceCalls::not_made(const Status& why) {
  const Status end = group_.alive();
  if (end.is_ok()) return why;
  fail(end, false);
  return first_failure();
}

// Begins to compare the call with those of the other ranks. In strict mode the host waits for the
// comparison before it queues the call. Otherwise the call is queued at once, and the stream waits
// after it if there are semaphores (PYCOLLECTIVE_STREAM_CHECK=on). A captured call is compared
// before it is queued, because nothing is compared when its graph is launched.
Status DeviceCalls::begin_comparison(cuda::DeviceCall& call, Call& started) {
  const bool host_waits = strict_ || call.is_captured;
  const std::optional<uint32_t> number = host_waits ? std::nullopt : agreed_->begin();
  std::function<void(const Status&)> on_end;
  if (number) {
    on_end = [agreed = agreed_, number = *number](const Status& outcome) {
      if (outcome.is_ok()) agreed->agree(number);
    };
  }
  Result<std::shared_ptr<AsyncWork>> begun =
      group_.begin_comparison(call.request, algorithm_of(call.request.collective, *executor_),
                              {std::max(started.deadline_.remaining_s(), 0.0), std::move(on_end)});
  const bool compares = begun.is_ok() && begun.value() != nullptr;
  if (number && !compares) agreed_->agree(*number);
  PC_TRY(begun.status());
  started.on_cpu_ = std::move(begun).value();
  if (compares) call.number = number;
  return Status::ok();
}

// From the moment when the call is in running_, the watcher monitors it, because this thread may be
// stuck inside NCCL until the call is aborted.
Status DeviceCalls::queue(const cuda::DeviceCall& call, const std::shared_ptr<Call>& started,
                          std::function<void(const Status&)> on_end) {
  bool wakes_watcher = false, wakes_poller = false;
  started->on_end_ = std::move(on_end);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.is_ok()) return raised_ = true, failure_;
    if (stopping_) return Status(Code::kNotInitialized, "the group of this call was closed");
    running_.push_back(started);
    wakes_watcher = watcher_sleeps_;
    wakes_poller = polls_again_in_ > (started->on_end_ ? kShortRound : kRound);
  }
  if (wakes_watcher) watch_now_.notify_one();
  auto queued = executor_->launch(call, group_.waiting_until(started->deadline_));
  // Wakes the poller only now, because it would otherwise call the driver during launch().
  if (wakes_poller) poll_now_.notify_one();
  if (!queued.is_ok())
    // reported, because the other ranks queue the call and would wait for this rank
    fail(queued.status().with_operation(started->operation_), true);
  const std::lock_guard lock(mutex_);
  // the watcher has ended the call, or will end it
  if (!failure_.is_ok()) return raised_ = true, failure_;
  started->on_gpu_ = std::move(queued).value();
  started->queued_.store(true, std::memory_order_release);
  return Status::ok();
}

bool DeviceCalls::can_split() const {
  const std::lock_guard lock(mutex_);
  return failure_.is_ok() && !issue_order_.is_mine();
}

Status DeviceCalls::run(const cuda::DeviceCall& call, double timeout_s) {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<GpuWork> started, launch(call, timeout_s));
  if (call.request.stream && executor_->in_stream_order()) return Status::ok();
  const Status ended = started->wait(-1);
  if (ended.code() != Code::kInterrupted || executor_->in_stream_order()) return ended;
  // Once this returns, the caller may reuse its array, so no other rank may write to it any more.
  Call& call_made = static_cast<Call&>(*started);
  if (call_made.on_gpu_->give_up()) {
    fail(interrupted(started->operation()), true);
    wait_for_abort(kAbort);
  } else {  // all ranks have begun the call, so it ends soon
    (void)call_made.on_gpu_->wait_on_host({call_made.last_});
  }
  return ended;
}

// Waits until the comparison succeeds. Once a rank sees that success, it may queue the call. So if
// this rank must stop waiting before it knows the outcome, it ends the calls of all ranks.
Status DeviceCalls::all_have_made(const Call& call) {
  const std::optional<Status> compared = this->compared(call, TimePoint::max(), AsyncWork::Part::kDrives);
  if (call.compared()) return *compared;
  const Status interrupted(Code::kInterrupted, "interrupted while the ranks compared this call");
  fail((compared ? *compared : interrupted).with_operation(call.operation_), true);
  return first_failure();
}

// Waits for the outcome of the comparison, which ends at the call's own deadline at the latest.
// Returns none if `until` passes first.
std::optional<Status> DeviceCalls::compared(const Call& call, TimePoint until, AsyncWork::Part part) const {
  if (call.on_cpu_ == nullptr) return Status::ok();
  return call.on_cpu_->wait(group_.waiting_until(Deadline(until)), part);
}

Status DeviceCalls::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status DeviceCalls::first_failure() {
  const std::lock_guard lock(mutex_);
  raised_ = raised_ || !failure_.is_ok();
  return failure_;
}

// Sets failure_, unless it is set already. The watcher then ends all calls with it, and aborts the
// executor. If `report` is true, informs the other ranks, which do not know of the failure yet.
void DeviceCalls::fail(const Status& why, bool report) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.is_ok()) return;
    failure_ = why;
  }
  watch_now_.notify_one();
  settled_.notify_all();
  if (report) group_.quit(why);
}

// After fail(): returns true if the abort has ended, so that aborted calls write to no array.
bool DeviceCalls::wait_for_abort(std::chrono::milliseconds wait_limit) {
  std::unique_lock lock(mutex_);
  settled_.wait_for(lock, wait_limit, [this] { return aborted_ || (watcher_ended_ && !aborting_); });
  if (!aborting_ && watcher_ended_) end_all(lock);
  return aborted_;
}

// Polls once a round. Calls that are queued meanwhile do not shorten the sleep, because waking a
// thread costs more than queueing a call.
void DeviceCalls::poll() {
  bool keeps_arrays = false;
  // outlives `lock`, in case this thread is detached
  std::shared_ptr<DeviceCalls> self;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool observed =
        settling_ != 0 || std::any_of(running_.begin(), running_.end(),
                                      [](const auto& each) { return each->on_end_ != nullptr; });
    const bool idle = running_.empty() && !keeps_arrays;
    polls_again_in_ = idle ? kNever : observed ? kShortRound : kRound;
    if (idle) settled_.notify_all();
    idle ? poll_now_.wait(lock) : (void)poll_now_.wait_for(lock, polls_again_in_);
    polls_again_in_ = {};
    ++question_;
    if (stopping_) break;
    lock.unlock();
    poll_calls();
    keeps_arrays = executor_->running() != 0;
    lock.lock();
  }
  poller_ended_ = true;
  settled_.notify_all();
  self = std::move(kept_);
}

void DeviceCalls::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!failure_.is_ok() && !aborting_) end_all(lock);
    if (stopping_) break;
    watcher_sleeps_ = running_.empty() || aborted_;
    watcher_sleeps_ ? watch_now_.wait(lock) : (void)watch_now_.wait_for(lock, kRound);
    watcher_sleeps_ = false;
    if (!failure_.is_ok() || stopping_) continue;
    lock.unlock();
    look_for_failures();
    lock.lock();
  }
  watcher_ended_ = true;
  settled_.notify_all();
}

// Informs callers before the abort, which may take long.
void DeviceCalls::end_all(std::unique_lock<std::mutex>& lock) {
  aborting_ = true;
  const std::deque<std::shared_ptr<Call>> calls = std::exchange(running_, {});
  for (const std::shared_ptr<Call>& each : calls) each->end(failure_);
  lock.unlock();
  for (const std::shared_ptr<Call>& each : calls) each->report();
  // failure_ does not change any more
  executor_->abort(failure_, agreed_->stop());
  lock.lock();
  aborted_ = true;
  settled_.notify_all();
}

// Returns how a queued call has ended on the GPU, or none if no end has been observed. `is_well` is
// true if poll_all() has succeeded, so that seen() is current.
std::optional<Status> DeviceCalls::end_on_gpu(const Call& call, bool is_well, TimePoint at) const {
  if (call.on_gpu_->in_graph()) return Status::ok();
  std::optional<Status> end = is_well ? call.on_gpu_->seen() : call.on_gpu_->outcome();
  if (!end && at >= call.due_) end = call.on_gpu_->outcome();  // it may have ended since poll_all()
  return end;
}

// Returns why a call has failed, if it has, and whether the other ranks must be informed.
std::optional<std::pair<Status, bool>> DeviceCalls::failure_of(const Call& call,
                                                               const std::optional<Status>& on_gpu,
                                                               TimePoint at) const {
  const std::optional<Status> compared = call.compared();
  if (compared && !compared->is_ok()) return std::pair(*compared, false);
  // For a mismatch the comparison has the better error, so its outcome is awaited. All ranks find a
  // mismatch themselves, so it is not reported to them.
  if (on_gpu && !on_gpu->is_ok() && !call.on_gpu_->is_refused() &&
      (compared || on_gpu->code() != Code::kMismatch))
    return std::pair(on_gpu->with_operation(call.operation_), on_gpu->code() != Code::kMismatch);
  // After the deadline, a comparison that has not ended reports the missing rank itself.
  if (compared && !on_gpu && at >= call.due_)
    return std::pair(Status(Code::kTimeout, kNotInTime).with_operation(call.operation_), true);
  return std::nullopt;
}

// Does the same as failure_of(), as far as possible without the driver, which may not respond.
std::optional<std::pair<Status, bool>> DeviceCalls::failure_outside_gpu(const Call& call,
                                                                        bool is_silent) const {
  const std::optional<Status> compared = call.compared();
  if (compared && !compared->is_ok()) return std::pair(*compared, false);
  const bool queued = call.is_queued();
  if (queued && call.on_gpu_->in_graph()) return std::nullopt;  // its timeout applied to queueing only
  if (compared && (!queued || is_silent) && clock_.now() >= call.due_)
    return std::pair(Status(Code::kTimeout, queued ? kNotInTime : kNotQueued).with_operation(call.operation_),
                     true);
  if (call.may_be_stuck() && interrupted_ && interrupted_(call.thread_, call.began()))
    return std::pair(interrupted(call.operation_), true);
  return std::nullopt;
}

void DeviceCalls::poll_calls() {
  // Read first: if this thread is detached inside the driver, the clock may be destroyed.
  const TimePoint at = clock_.now();
  const Status trouble = executor_->poll_all();
  std::vector<std::shared_ptr<Call>> ended;
  for (const std::shared_ptr<Call>& each : running()) {
    if (!each->is_queued()) continue;
    const std::optional<Status> on_gpu = end_on_gpu(*each, trouble.is_ok(), at);
    if (const auto failure = failure_of(*each, on_gpu, at)) {
      fail(failure->first, failure->second);
    } else if (each->compared() && on_gpu) {
      ended.push_back(each);
    }
  }
  take_out(ended);
  if (!trouble.is_ok()) fail(trouble, true);
}

// Called each round of the watcher. Returns true if a query has lasted for kOverdueRounds rounds.
bool DeviceCalls::driver_is_silent() {
  const std::lock_guard lock(mutex_);
  const bool is_the_same = polls_again_in_ == std::chrono::milliseconds(0) && question_ == overdue_;
  overdue_rounds_ = is_the_same ? overdue_rounds_ + 1 : 0;
  overdue_ = question_;
  return overdue_rounds_ >= kOverdueRounds;
}

void DeviceCalls::look_for_failures() {
  const bool is_silent = driver_is_silent();
  for (const std::shared_ptr<Call>& each : running())
    if (const auto failure = failure_outside_gpu(*each, is_silent)) fail(failure->first, failure->second);
  if (const Status end = group_.alive(); !end.is_ok()) fail(end, false);
}

// Removes calls that have ended from running_. The group remains usable.
void DeviceCalls::take_out(const std::vector<std::shared_ptr<Call>>& ended) {
  std::vector<std::shared_ptr<Call>> taken;
  {
    const std::lock_guard lock(mutex_);
    // number of removed calls; both lists have the same order, so one pass suffices
    std::size_t gone = 0;
    std::erase_if(running_, [&](const std::shared_ptr<Call>& each) {
      return gone < ended.size() && each == ended[gone] && ++gone != 0;
    });
    // If the watcher has ended all calls meanwhile, it has removed all of them, so `gone` is 0.
    if (gone == ended.size()) taken = ended;
    for (const std::shared_ptr<Call>& each : taken) each->end_by_itself();
  }
  for (const std::shared_ptr<Call>& each : taken) each->report();
}

Status DeviceCalls::settle(double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  std::unique_lock lock(mutex_);
  const auto over = [&] {
    return !failure_.is_ok() || stopping_ || (running_.empty() && polls_again_in_ == kNever);
  };
  bool in_time = over();
  if (!in_time) {
    ++settling_;
    poll_now_.notify_one();  // the poller may be in a long sleep
    in_time = settled_.wait_until(lock, deadline.when(), over);
    --settling_;
  }
  lock.unlock();
  return in_time ? first_failure() : Status(Code::kTimeout, "calls on the GPU have not ended in time");
}

// Closes a group that has failed. Returns the failure if no call has returned it yet.
Status DeviceCalls::close_failed(const Status& failed) {
  stop_threads();
  const std::lock_guard lock(mutex_);
  return std::exchange(raised_, true) ? Status::ok() : failed;
}

Status DeviceCalls::close(double timeout_s) {
  // the watcher may not have noticed yet that the group has ended
  if (const Status end = group_.alive(); !end.is_ok()) fail(end, false);
  if (const Status failed = failure(); !failed.is_ok()) return close_failed(failed);
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  // while it is held, no other call is queued
  PC_ASSIGN_OR_RETURN(const FifoLock::Held held, issue_order_.take(group_, deadline));
  if (const Status failed = failure(); !failed.is_ok()) return close_failed(failed);
  for (const std::shared_ptr<Call>& each : running()) {
    const Status ended = each->until_ended(deadline);
    if (!ended.is_ok() && !each->on_gpu_->in_graph() && !each->on_gpu_->is_refused()) return ended;
  }
  stop_threads();  // while they run, the threads would take a closed communicator for a failed one
  if (const Status failed = first_failure(); !failed.is_ok()) {
    wait_for_abort(kAbort);
    group_.quit(failed);
    return failed;
  }
  return executor_->close(group_.waiting_until(deadline));
}

void DeviceCalls::abort(const Status& why) {
  fail(why, false);
  wait_for_abort(kAbort);
  stop_threads();
}

std::optional<Status> DeviceCalls::Call::precede(const WaitContext& context, void* stream) {
  if (!in_stream_order_) return wait(context);
  const auto theirs = static_cast<cuda::CUstream>(stream);
  if (const std::shared_ptr<DeviceCalls> calls = calls_.lock()) {
    const Status failed = calls->first_failure();
    // The abort fills results with NaN. The owner may write to its array next, so its stream must
    // first wait for the abort's writes.
    if (!failed.is_ok() && calls->executor_->agreed() != nullptr && calls->wait_for_abort(kShortAbort))
      (void)on_gpu_->precede(theirs);
    PC_TRY(failed);
  }
  return on_gpu_->precede(theirs);
}

Status DeviceCalls::Call::until_ended(Deadline deadline) {
  if (ended_well()) return Status::ok();
  const std::shared_ptr<DeviceCalls> calls = calls_.lock();
  if (calls == nullptr)
    return outcome().value_or(Status(Code::kNotInitialized, "the group of this call was closed"));
  const TimePoint until = deadline.when();
  // Uses kWaitsOnly: a signal handler of the program may run during the wait, and may itself wait
  // for the stream.
  const std::optional<Status> compared = calls->compared(*this, until, AsyncWork::Part::kWaitsOnly);
  if (compared && !compared->is_ok()) {
    if (!this->compared()) return *compared;  // only this wait was refused; the call continues
    calls->fail(*compared, false);
    this->end(*compared);
    calls->wait_for_abort(in_stream_order_ ? kShortAbort : kAbort);
    return calls->first_failure();
  }
  // true: the wait lasts until the call's own deadline, at which all calls end
  const bool is_own = until >= deadline_.when();
  if (on_gpu_->in_graph()) return on_gpu_->wait_on_host({deadline_}).status();
  const Result<WaitEnd> end = on_gpu_->wait_on_host(calls->group_.waiting_until(is_own ? last_ : deadline));
  if (end.is_ok() && end.value() == WaitEnd::kReady && compared) {
    this->end(Status::ok());
    return Status::ok();
  }
  if (ended_well()) return Status::ok();  // the call may have succeeded before the group was closed
  Status ended = end.status();
  bool ends_all = true;  // true: the call can no longer succeed on any rank, so all calls end
  if (end.is_ok()) {
    switch (end.value()) {
      case WaitEnd::kReady: ended = Status(Code::kTimeout, "not all ranks have made this call"); break;
      case WaitEnd::kTimeout:
        ended = Status(Code::kTimeout, compared ? kNotInTime : "not all ranks have made this call");
        break;
      case WaitEnd::kAborted: ended = calls->group_.alive(); break;
      case WaitEnd::kInterrupted: ended = Status(Code::kInterrupted, "interrupted"); break;
    }
    ends_all = end.value() == WaitEnd::kAborted || (end.value() == WaitEnd::kTimeout && is_own && compared);
  }
  ended = ended.with_operation(operation_);
  if (!end.is_ok() && compared && on_gpu_->is_refused()) {
    observed_ = true;
    end_by_itself();
    return ended;
  }
  if (ends_all) {
    calls->fail(ended, ended.code() != Code::kMismatch);
    this->end(ended);
    calls->wait_for_abort(in_stream_order_ ? kShortAbort : kAbort);
  }
  const Status first = calls->first_failure();
  return first.is_ok() ? ended : first;
}

}  // namespace pc
