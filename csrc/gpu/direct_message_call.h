// One message between GPUs that continues after the call that began it has returned, and the
// failures of such messages. For direct_messages.cc.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "gpu/group_on_gpus.h"
#include "gpu/staging/gpu_work.h"
#include "gpu/staging/staged_calls.h"

namespace pc {

std::string text_of(const UserCall& message);  // "send to rank 1, tag 0 (4 MiB float32)"
// Converts an error of a channel into an error of the message. The result has `rank`, `operation`
// and the message's peer in place of the channel's ranks and its broadcast.
Status words_of(const Status& of_channel, const UserCall& message, const std::string& operation, Rank rank);

// Failures of messages that no caller has received yet; the next call returns the first one. Shared
// by DirectMessages and by message calls that may outlive it. Thread-safety: all methods.
class MessageFailures {
 public:
  explicit MessageFailures(Communicator& group) : group_(&group) {}
  // Records that `call` failed on the GPU after it was queued, unless its caller has received that
  // failure already. Only the first failure is kept.
  void note(const Status& why, const void* call) {
    const std::lock_guard lock(mutex_);
    if (reported_.erase(call) != 0 || !first_.is_ok()) return;
    first_ = why;
    of_ = call;
  }
  // The caller of `call` has received its failure, so no later call returns it.
  void reported(const void* call) {
    const std::lock_guard lock(mutex_);
    if (of_ != call) {
      reported_.insert(call);
      return;
    }
    first_ = Status();
    of_ = nullptr;
  }
  // Called when `call` is destroyed. A failure of `call` is kept for the group's next call.
  void forget(const void* call) {
    const std::lock_guard lock(mutex_);
    reported_.erase(call);
    if (of_ == call) of_ = this;
  }
  Status take() {
    const std::lock_guard lock(mutex_);
    of_ = nullptr;
    return std::exchange(first_, Status());
  }
  // Passes the failure of a message that was never queued on the GPU to the group, so that the
  // group's next call returns it.
  void unobserved(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (group_ != nullptr) group_->unobserved(why);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    group_ = nullptr;
  }

 private:
  std::mutex mutex_;  // guards the members below
  Communicator* group_;
  Status first_;
  const void* of_ = nullptr;
  std::set<const void*> reported_;  // calls that reported their failure before note() was called
};

// A message that continues after begin() has returned: first in a thread of its own, then queued on
// the GPU. Thread-safety: all methods.
class DirectMessageCall final : public GpuWork, public std::enable_shared_from_this<DirectMessageCall> {
 public:
  // `stopping` and `group` must outlive the thread of the message.
  DirectMessageCall(Communicator& group, std::shared_ptr<MessageFailures> failures,
                    const std::atomic<bool>& stopping, const UserCall& what, Deadline deadline,
                    std::function<void(const Status&)> on_end)
      : group_(group),
        rank_(group.rank()),
        failures_(std::move(failures)),
        what_(what),
        deadline_(deadline),
        stop_([this, &stopping] { return given_up_ || stopping; }),
        on_end_(std::move(on_end)) {
    operation_ = text_of(what);
    if (what.found != nullptr) {  // not kept, because the caller owns *found
      what_.request.root = what.found->peer;
      what_.kind = UserCall::Kind::kRecv;
      what_.found = nullptr;
    }
    if (what.shape) {  // copied, because the caller owns the memory of `shape`
      shape_.assign(what.shape->begin(), what.shape->end());
      what_.shape = shape_;
    }
  }

  ~DirectMessageCall() override { failures_->forget(this); }

  std::optional<Status> precede(const WaitContext& context, void* stream) override {
    const std::optional<Status> queued = until_queued(context.deadline);
    const std::shared_ptr<GpuWork> rest = this->rest();
    if (!queued || !queued->is_ok() || rest == nullptr) return queued;
    const std::optional<Status> done = rest->precede(context, stream);
    return done ? std::optional(observed(*done)) : done;
  }
  bool precedes_at_once() const override {
    const std::shared_ptr<GpuWork> rest = this->rest();
    return rest != nullptr ? rest->precedes_at_once() : done();
  }
  Status until_ended(Deadline deadline) override {
    const std::optional<Status> queued = until_queued(deadline);
    if (!queued) return Status(Code::kTimeout, "the message has not been moved").with_operation(operation_);
    const std::shared_ptr<GpuWork> rest = this->rest();
    return !queued->is_ok() || rest == nullptr ? *queued : observed(rest->until_ended(deadline));
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return queued_ && (rest_ == nullptr || rest_->done());
  }
  void detach() override {
    const std::lock_guard lock(mutex_);
    detached_ = true;
    report_if_unobserved();
  }
  // Cancels the message if the other rank is not waiting for it yet.
  void give_up() { given_up_ = true; }

  // ---- used by the thread of the message
  const UserCall& what() const { return what_; }
  Deadline deadline() const { return deadline_; }
  const std::function<bool()>* stop() const { return &stop_; }
  // Queues the message on the GPU. `backend` notifies this object when the message has ended there.
  Status begin(GroupOnGpus& backend, const UserCall& call, double timeout_s, bool on_caller_stream) {
    const auto ended = [own = shared_from_this()](const Status&) mutable {
      own->end_as_the_rest();
      own.reset();
    };
    const std::lock_guard beginning(beginning_);
    PC_ASSIGN_OR_RETURN(std::shared_ptr<GpuWork> rest,
                        backend.begin(call, timeout_s, ended, on_caller_stream));
    const std::lock_guard lock(mutex_);
    rest_ = std::move(rest);
    return Status::ok();
  }
  void set_queued(const Status& outcome) {
    bool is_over = false;
    {
      const std::lock_guard lock(mutex_);
      is_over = rest_ == nullptr;
      if (is_over) end(outcome);
      outcome_ = outcome;
      queued_ = true;
      if (detached_) report_if_unobserved();
      what_.keeps = nullptr;
    }
    changed_.notify_all();
    if (is_over && on_end_) on_end_(outcome);
  }
  bool is_queued() const {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  // Waits until the message is queued on the GPU or has ended before that, and returns the outcome.
  // Returns none if `until` passes first or on Ctrl-C. If `ignores_interrupts` is true, Ctrl-C is
  // ignored.
  std::optional<Status> until_queued(Deadline until, bool ignores_interrupts = false) const {
    std::unique_lock lock(mutex_);
    while (!queued_) {
      if (until.remaining_s() <= 0) return std::nullopt;
      changed_.wait_for(lock, kSlice);
      if (queued_ || ignores_interrupts) continue;
      lock.unlock();
      if (interrupted(group_.waiting_until(until))) return std::nullopt;
      lock.lock();
    }
    observed_ = true;
    return outcome_;
  }

 private:
  static constexpr std::chrono::milliseconds kSlice{5};  // the interval at which Ctrl-C is checked

  static bool interrupted(const WaitContext& context) { return context.is_interrupted(); }
  void report_if_unobserved() {  // requires mutex_
    if (!queued_ || observed_) return;
    observed_ = true;
    if (!outcome_.is_ok()) failures_->unobserved(outcome_);
  }
  std::shared_ptr<GpuWork> rest() const {
    const std::lock_guard lock(mutex_);
    return rest_;
  }
  // Records the outcome of rest_, if it has ended. `of_rest` is the result of a wait for rest_; it
  // is returned as an error of the message.
  Status observed(const Status& of_rest) {
    const std::optional<Status> outcome = rest()->outcome();
    if (outcome) end(*outcome);
    if (of_rest.is_ok() || !outcome || outcome->is_ok()) return of_rest;
    failures_->reported(this);
    return in_words(*outcome);
  }
  Status in_words(const Status& of_channel) const { return words_of(of_channel, what_, operation_, rank_); }
  // Called when rest_ has ended, in the thread that detects it. The caller may have received
  // success when the message was queued, so a failure is recorded for the next call.
  void end_as_the_rest() {
    {
      const std::lock_guard beginning(beginning_);  // the call may end before begin() has stored rest_
    }
    const Status outcome = rest()->outcome().value_or(Status::ok());
    end(outcome);
    if (!outcome.is_ok()) failures_->note(in_words(outcome), this);
    if (on_end_) on_end_(outcome.is_ok() ? outcome : in_words(outcome));
  }

  Communicator& group_;  // used only until the message is queued
  const Rank rank_;
  const std::shared_ptr<MessageFailures> failures_;
  UserCall what_;
  std::vector<int64_t> shape_;
  const Deadline deadline_;
  std::atomic<bool> given_up_{false};
  const std::function<bool()> stop_;
  const std::function<void(const Status&)> on_end_;
  std::mutex beginning_;      // held by begin() until rest_ is set
  mutable std::mutex mutex_;  // guards the members below
  mutable std::condition_variable changed_;
  bool queued_ = false, detached_ = false;
  mutable bool observed_ = false;  // a caller has received outcome_
  Status outcome_;  // outcome of queueing or, if rest_ is null, of the message; set together with queued_
  std::shared_ptr<GpuWork> rest_;  // the work on the GPU; null: the message is not queued there
};

}  // namespace pc
