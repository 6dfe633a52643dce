#include "engine/run_queue.h"

#include <algorithm>

#include "engine/executor.h"

namespace pc {

WorkPtr RunQueue::enter(std::unique_ptr<Run> run, const std::shared_ptr<OpenGroups>& groups,
                        const std::shared_ptr<OpenGroup>& group) {
  WorkPtr work;  // declared before the lock, so that it is released without the lock if something throws
  Lock lock(mutex_);
  aborted_.is_ok() ? runs_.push_back(run.get()) : run->end(aborted_);
  work = Run::as_work(std::move(run), *this, groups, group);
  if (!progress_held_) start_first(lock);
  return work;
}

void RunQueue::release(std::unique_ptr<Run> run) {
  Lock lock(mutex_);
  if (!run->ended()) end(lock, *run, Status(Code::kAborted, "dropped by its owner before it was done"));
  if (is_held(*run)) {
    dropped_ = std::move(run);  // the driving thread uses the run once more after its probe
    return;
  }
  if (!runs_.empty()) std::erase(runs_, run.get());
  if (!progress_held_) start_first(lock);
  keep(std::move(run));
}

void RunQueue::keep(std::unique_ptr<Run> run) {
  if (idle_.size() == kMostIdle) idle_.erase(idle_.begin());
  idle_.push_back(std::move(run));
}

void RunQueue::start_first(Lock& lock) {
  while (!runs_.empty() && !runs_.front()->started()) {
    Run& first = *runs_.front();
    hold_progress();
    lock.unlock();
    first.start(scratch_);
    lock.lock();
    release_progress();
  }
}

void RunQueue::hold_progress() {
  progress_held_ = true;
  runs_.front()->stop_notifying();
}

void RunQueue::release_progress() {
  progress_held_ = false;
  runs_.erase(runs_.begin(),
              std::find_if(runs_.begin(), runs_.end(), [](const Run* run) { return !run->ended(); }));
  if (!runs_.empty() && runs_.front()->started()) runs_.front()->notify_completions();
  if (!skipped_.empty()) discard_due();
  if (dropped_ != nullptr) keep(std::move(dropped_));
  progress_released_.notify_all();
}

bool RunQueue::is_held(const Run& run) const {
  return progress_held_ && !runs_.empty() && runs_.front() == &run;
}

// Records when the driving thread is inside its interrupt probe. During that time any thread may
// end the run.
class RunQueue::Probed final : public ProbeScope {
 public:
  Probed(RunQueue& runs, WaitContext& context) : ProbeScope(context), runs_(runs) {}
  void enter() override { set(true); }
  void leave() override { set(false); }

 private:
  void set(bool inside) {
    const Lock lock(runs_.mutex_);
    runs_.in_probe_ = inside;
    runs_.progress_released_.notify_all();
  }
  RunQueue& runs_;
};

WaitEnd RunQueue::drive(const Run& run, const WaitContext& context) {
  if (run.ended()) return WaitEnd::kReady;
  WaitContext held = context;
  const Probed probed(*this, held);
  Lock lock(mutex_);
  while (!run.ended()) {
    WaitEnd how = WaitEnd::kReady;
    if (progress_held_) {
      how = wait_for_progress(lock, context);
    } else {
      Run& first = *runs_.front();
      hold_progress();
      lock.unlock();
      if (!first.started()) first.start(scratch_);
      TimePoint looked{};
      for (first.advance(); !first.ended() && !run.ended() && how == WaitEnd::kReady;) {
        how = first.wait_to_advance(reactor_, held);
        if (how != WaitEnd::kReady) break;
        first.advance();
        if (first.ended()) break;
        // wait_to_advance() does not check Ctrl-C or the deadline if it returns early. So they are
        // checked here, once per time slice.
        const TimePoint now = pc::now();
        if (looked == TimePoint{}) looked = now;
        if (now - looked < std::chrono::milliseconds(Deadline::kSliceMs)) continue;
        looked = now;
        how = Waiter::check(held);
      }
      lock.lock();
      const bool ended = first.ended();
      release_progress();
      if (ended) {
        start_first(lock);  // otherwise peers would wait until a thread here waits for the next run
        continue;
      }
    }
    if (how != WaitEnd::kReady && !run.ended()) return how;
  }
  return WaitEnd::kReady;
}

void RunQueue::end(Run& run, const Status& why) {
  Lock lock(mutex_);
  end(lock, run, why);
}

void RunQueue::progress() {
  Lock lock(mutex_);
  while (!progress_held_ && !runs_.empty()) {
    Run& first = *runs_.front();
    hold_progress();
    lock.unlock();
    first.started() ? first.advance() : first.start(scratch_);
    lock.lock();
    const bool ended = first.ended();
    release_progress();
    if (!ended) return;
  }
}

void RunQueue::notify(Run& run, CompletionSink* notifier, uint64_t token) {
  const Lock lock(mutex_);
  run.set_notifier(notifier, token);
  if (progress_held_ || run.ended() || runs_.front() != &run) return;
  run.started() ? run.notify_completions() : run.notify_now();
}

// If the first run has yet to be started, completes its notifier, because perhaps no thread waits
// for the run.
void RunQueue::notify_if_due() {
  if (!progress_held_ && !runs_.empty() && !runs_.front()->started()) runs_.front()->notify_now();
}

WaitEnd RunQueue::wait_for_progress(Lock& lock, const WaitContext& context) {
  progress_released_.wait_for(lock, std::chrono::milliseconds(context.deadline.slice_ms()));
  lock.unlock();  // the probe may run a signal handler, which may call anything
  const WaitEnd how = Waiter::check(context);
  lock.lock();
  return how;
}

void RunQueue::end(Lock& lock, Run& run, const Status& why) {
  if (is_held(run) && !in_probe_) {
    run.request_end(why);  // the driving thread sees it at once
    progress_released_.wait(lock, [&] { return run.ended() || !is_held(run) || in_probe_; });
  }
  if (run.ended()) return;
  run.end(why);
  if (is_held(run)) {
    run.request_end(why);  // so that the driving thread wakes when the probe has returned
    return;
  }
  if (!run.started()) skipped_.push_back(run.sequence());
  std::erase(runs_, &run);
  discard_due();
  // wakes the driving thread, which perhaps drives the first run only because it waits for `run`
  if (progress_held_) runs_.front()->wake();
  // wakes a thread that waits for the next run, so that the thread starts that run
  progress_released_.notify_all();
  notify_if_due();
}

// A call may end here before earlier calls do, while peers already send messages for it. Such
// messages can be discarded only when the earlier calls have ended, because a transport discards
// the messages of all calls up to a number.
void RunQueue::discard_due() {
  std::erase_if(skipped_, [this](uint64_t sequence) {
    const bool due = runs_.empty() || runs_.front()->sequence() > sequence;
    if (due) discard_(sequence);
    return due;
  });
}

void RunQueue::cancel(uint64_t sequence, const Status& why) {
  Lock lock(mutex_);
  if (!aborted_.is_ok()) return;
  const auto found =
      std::find_if(runs_.begin(), runs_.end(), [&](const Run* run) { return run->sequence() == sequence; });
  if (found == runs_.end()) {
    skipped_.push_back(sequence);
    return discard_due();
  }
  if ((*found)->ended()) return;
  if (is_held(**found) && !in_probe_) return (*found)->request_end(why);
  end(lock, **found, why);
}

void RunQueue::wake() {
  const Lock lock(mutex_);
  if (!runs_.empty()) runs_.front()->wake();
}

bool RunQueue::is_idle() {
  const Lock lock(mutex_);
  return runs_.empty() && !progress_held_ && dropped_ == nullptr;
}

void RunQueue::abort(const Status& why) {
  Lock lock(mutex_);
  if (!aborted_.is_ok()) return;
  aborted_ = why;
  for (Run* run : runs_) {
    if (run->ended()) continue;
    if (is_held(*run) && !in_probe_) {
      run->request_end(why);
    } else {
      run->end(why);
      if (is_held(*run)) run->request_end(why);
    }
  }
  std::erase_if(runs_, [&](Run* run) { return run->ended() && !is_held(*run); });
  progress_released_.notify_all();
}

}  // namespace pc
