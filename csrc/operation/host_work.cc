#include "operation/host_work.h"

#include <algorithm>

namespace pc {

HostWork::HostWork(Status outcome) : outcome_(std::move(outcome)), ended_at_(began_) {}

HostWork::HostWork(Owner& owner, uint64_t id, Start start)
    : owner_(&owner),
      id_(id),
      group_(start.work->kept_group()),
      operation_(start.work->text()),
      sequence_(start.work->sequence()),
      own_{start.deadline, group_->calls.word(), nullptr, nullptr},
      work_(std::move(start.work)),
      on_end_(std::move(start.on_end)) {}

bool HostWork::done() const {
  const std::lock_guard lock(mutex_);
  return work_ == nullptr || work_->done();
}

std::optional<Status> HostWork::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

TimePoint HostWork::ended_at() const {
  const std::lock_guard lock(mutex_);
  return outcome_ ? ended_at_ : now();
}

std::optional<Status> HostWork::wait(const WaitContext& context, Part part) {
  std::unique_lock lock(mutex_);
  while (!outcome_ && (claimed_ || part == Part::kWaitsOnly)) {
    if (const Status inside = group_->reentry.check(); !inside.is_ok()) return inside;
    changed_.wait_for(lock, std::chrono::milliseconds(context.deadline.slice_ms()));
    if (outcome_) break;
    lock.unlock();  // because the probe runs the user's code
    const WaitEnd end = Waiter::check(context);
    lock.lock();
    if (end != WaitEnd::kReady && !outcome_) return std::nullopt;
  }
  if (outcome_) return outcome_;
  if (const Status inside = group_->reentry.check(); !inside.is_ok()) return inside;
  claimed_ = true;
  lock.unlock();
  work_->notify(nullptr, 0);
  const WaitEnd end = work_->drive(with_own(context));
  if (end == WaitEnd::kReady || Waiter::check(own_) != WaitEnd::kReady) {
    finish(context.interrupted);
    return outcome();
  }
  let_go();
  return std::nullopt;
}

// Adds the call's deadline and the end of its group to the waiting thread's context, because no
// other thread checks them while this thread drives the call.
WaitContext HostWork::with_own(const WaitContext& context) const {
  WaitContext both = context;
  both.deadline = Deadline(std::min(context.deadline.when(), own_.deadline.when()));
  both.abort_word = own_.abort_word;
  return both;
}

void HostWork::detach() {
  std::unique_lock lock(mutex_);
  if (std::exchange(detached_, true) || !outcome_) return;
  lock.unlock();
  report_if_unobserved(*outcome_);
}

void HostWork::report_if_unobserved(const Status& outcome) const {
  if (!outcome.is_ok() && group_ != nullptr) group_->calls.unobserved(outcome);
}

// ---- for the progress thread

void HostWork::go_on() {
  if (!claim()) return;
  work_->progress();
  work_->done() || Waiter::check(own_) != WaitEnd::kReady ? end() : let_go();
}

void HostWork::look(TimePoint now) {
  if (!claim()) return;
  if (work_->done() || Waiter::check(own_) != WaitEnd::kReady) return end();
  work_->look_after(now);
  let_go();
}

void HostWork::end_now() {
  if (claim()) finish(nullptr);
}

// Does not block the progress thread, which must drive other calls too. If reports from other ranks
// are needed, requests them; a later look() then ends the call.
void HostWork::end() {
  if (!work_->requests_reports(own_)) return finish(nullptr);
  {
    const std::lock_guard lock(mutex_);
    claimed_ = false;
    changed_.notify_all();  // sets no notifier, which the ended call would complete at once
  }
  if (owner_->stopping()) end_now();
}

bool HostWork::claim() {
  const std::lock_guard lock(mutex_);
  if (claimed_ || outcome_) return false;
  return claimed_ = true;
}

void HostWork::let_go() {
  {
    const std::lock_guard lock(mutex_);
    claimed_ = false;
    changed_.notify_all();
    // after claimed_ is cleared: the progress thread ignores notifications of a claimed call
    work_->notify(owner_->notifier(), id_);
  }
  if (owner_->stopping()) end_now();
}

void HostWork::finish(const std::function<bool()>* probe) {
  WaitContext context = own_;
  context.interrupted = probe;
  Status outcome = work_->wait(context);
  std::unique_ptr<Operation> ended;
  std::function<void(const Status&)> on_end;
  bool unobserved = false;
  {
    const std::lock_guard lock(mutex_);
    ended = std::move(work_);
    on_end = std::move(on_end_);
    outcome_ = outcome;
    ended_at_ = now();
    claimed_ = false;
    unobserved = detached_;
    changed_.notify_all();
  }
  ended.reset();
  if (unobserved) report_if_unobserved(outcome);
  owner_->forget(id_);
  if (on_end) on_end(outcome);
}

}  // namespace pc
