#include "engine/group_line.h"

#include <algorithm>

#include "engine/executor.h"

namespace pc {
namespace {

constexpr std::size_t kMaxIdleRuns = 16;
constexpr int kSliceMs = 50;

}  // namespace

std::unique_ptr<PlanRun> GroupLine::new_run() {
  const Lock lock(mutex_);
  if (idle_.empty()) return std::make_unique<PlanRun>(transport_);
  std::unique_ptr<PlanRun> run = std::move(idle_.back());
  idle_.pop_back();
  return run;
}

void GroupLine::release(std::unique_ptr<PlanRun> run) {
  Lock lock(mutex_);
  if (!run->ended() || std::find(runs_.begin(), runs_.end(), run.get()) != runs_.end()) {
    const Status why(Code::kAborted, "dropped by its owner before it was done");
    if (driven_here(
            *run)) {  // a signal handler drops what this thread waits for: there is nobody to wait for
      run->end(why);
      run->request_end(why);  // so that the frame below wakes
      dropped_ = std::move(run);
      return;
    }
    withdraw(lock, *run, why);
  }
  if (idle_.size() < kMaxIdleRuns) idle_.push_back(std::move(run));
}

void GroupLine::enter(PlanRun& run) {
  Lock lock(mutex_);
  if (!aborted_.is_ok()) return run.end(aborted_);
  runs_.push_back(&run);
  if (!driven_) start_first(lock);
}

void GroupLine::start_first(Lock& lock) {
  while (!runs_.empty() && !runs_.front()->started()) {
    PlanRun& first = *runs_.front();
    take_baton();
    lock.unlock();
    first.start(scratch_);
    lock.lock();
    drop_baton();
  }
}

void GroupLine::take_baton() {
  driven_ = true;
  driver_ = std::this_thread::get_id();
}

void GroupLine::drop_baton() {
  driven_ = false;
  if (!runs_.empty() && runs_.front()->ended()) runs_.pop_front();
  if (dropped_ != nullptr) idle_.push_back(std::move(dropped_));
  baton_free_.notify_all();
}

bool GroupLine::driven_here(const PlanRun& run) const {
  return driven_ && driver_ == std::this_thread::get_id() && !runs_.empty() && runs_.front() == &run;
}

Status GroupLine::wait(PlanRun& run, const WaitContext& context) {
  if (run.ended()) return run.result();
  Lock lock(mutex_);
  while (!run.ended()) {
    const WaitEnd end = driven_ ? wait_for_baton(lock, context) : drive_first(lock, context);
    if (end == WaitEnd::kReady || run.ended()) continue;
    withdraw(lock, run, ended_early(end, run.where(), run.waits_for()));
  }
  return run.result();
}

WaitEnd GroupLine::drive_first(Lock& lock, const WaitContext& context) {
  PlanRun& first = *runs_.front();
  take_baton();
  lock.unlock();
  WaitEnd end = WaitEnd::kReady;
  if (!first.started()) first.start(scratch_);
  for (first.advance(); !first.ended() && end == WaitEnd::kReady;) {
    end = reactor_.wait(first.queue(), context);
    if (end == WaitEnd::kReady) first.advance();
  }
  lock.lock();
  drop_baton();
  if (first.ended()) {
    start_first(lock);  // so that peers need not wait until somebody here waits for the next one
    return WaitEnd::kReady;
  }
  return end;
}

WaitEnd GroupLine::wait_for_baton(Lock& lock, const WaitContext& context) {
  baton_free_.wait_for(lock, std::chrono::milliseconds(context.deadline.slice_ms(kSliceMs)));
  lock.unlock();  // the probe may run a signal handler, and that may call anything
  const WaitEnd end = Waiter::check(context);
  lock.lock();
  return end;
}

void GroupLine::withdraw(Lock& lock, PlanRun& run, const Status& why) {
  const auto driven_by_another = [&] { return driven_ && !runs_.empty() && runs_.front() == &run; };
  if (driven_by_another()) {
    if (!run.ended()) run.request_end(why);
    baton_free_.wait(lock, [&] { return !driven_by_another(); });  // its driver sees the request at once
  }
  run.end(why);
  std::erase(runs_, &run);
  if (!driven_) start_first(lock);
}

void GroupLine::abort(const Status& why) {
  const Lock lock(mutex_);
  if (!aborted_.is_ok()) return;
  aborted_ = why;
  if (driven_ && !runs_.empty()) runs_.front()->request_end(why);
  for (PlanRun* run : runs_) {
    if (!driven_ || run != runs_.front()) run->end(why);
  }
  std::erase_if(runs_, [&](PlanRun* run) { return run->ended() && !(driven_ && run == runs_.front()); });
  baton_free_.notify_all();
}

}  // namespace pc
