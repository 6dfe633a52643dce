#include "engine/group_line.h"

#include <algorithm>

namespace pc {
namespace {

constexpr std::size_t kMaxIdleRuns = 16;
constexpr int kSliceMs = 50;

Status ended_early(WaitEnd end, const PlanRun& run) {
  const std::string where = run.where();
  switch (end) {
    case WaitEnd::kTimeout: return Status(Code::kTimeout, "timed out in " + where).with_peer(run.waits_for());
    case WaitEnd::kInterrupted: return Status(Code::kInterrupted, "interrupted in " + where);
    default: return Status(Code::kAborted, "aborted in " + where);
  }
}

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
  withdraw(lock, *run, Status(Code::kAborted, "dropped by its owner before it was done"));
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
    driven_ = true;
    lock.unlock();
    first.start(scratch_);
    lock.lock();
    drop_baton();
  }
}

void GroupLine::drop_baton() {
  driven_ = false;
  if (!runs_.empty() && runs_.front()->ended()) runs_.pop_front();
  baton_free_.notify_all();
}

Status GroupLine::wait(PlanRun& run, const WaitContext& context) {
  if (run.ended()) return run.result();
  Lock lock(mutex_);
  while (!run.ended()) {
    const WaitEnd end = driven_ ? wait_for_baton(lock, context) : drive_first(lock, context);
    if (end == WaitEnd::kReady || run.ended()) continue;
    withdraw(lock, run, ended_early(end, run));
  }
  return run.result();
}

WaitEnd GroupLine::drive_first(Lock& lock, const WaitContext& context) {
  PlanRun& first = *runs_.front();
  driven_ = true;
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
  if (context.abort_word != nullptr && context.abort_word->load(std::memory_order_acquire) != 0)
    return WaitEnd::kAborted;
  if (context.deadline.expired()) return WaitEnd::kTimeout;
  if (context.interrupted != nullptr && *context.interrupted && (*context.interrupted)())
    return WaitEnd::kInterrupted;
  return WaitEnd::kReady;
}

void GroupLine::withdraw(Lock& lock, PlanRun& run, const Status& why) {
  const auto driven_by_another = [&] { return driven_ && !runs_.empty() && runs_.front() == &run; };
  if (driven_by_another()) {
    if (!run.ended()) {
      run.request_end(why);
      reactor_.wake();
    }
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
  if (driven_ && !runs_.empty()) {
    runs_.front()->request_end(why);
    reactor_.wake();
  }
  for (PlanRun* run : runs_) {
    if (!driven_ || run != runs_.front()) run->end(why);
  }
  std::erase_if(runs_, [&](PlanRun* run) { return run->ended() && !(driven_ && run == runs_.front()); });
  baton_free_.notify_all();
}

}  // namespace pc
