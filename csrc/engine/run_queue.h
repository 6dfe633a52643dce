// The runs of one group, in issue order. They share one scratch memory and often the caller's
// arrays, so a run posts its operations only when all earlier runs have ended. Therefore a thread
// that waits for a run first drives the runs before it. One thread at a time holds the progress
// lock and makes progress. The other waiting threads sleep until the lock is free or their own wait
// ends.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/run.h"

namespace pc {

// Thread-safety: all methods.
class RunQueue {
 public:
  // `discard(number)` discards the messages of a call that ended here before it started, because
  // peers may already have sent some. It is called when all earlier calls have ended.
  using Discard = std::function<void(uint64_t)>;
  RunQueue(Reactor& reactor, uint32_t group, Discard discard)
      : reactor_(reactor),
        group_(group),
        discard_(std::move(discard)) {
    runs_.reserve(kMostIdle);
    idle_.reserve(kMostIdle);  // so that release(), which must not throw, can add runs without an allocation
  }
  uint32_t group() const { return group_; }

  // Appends a run to the queue, and starts it if it is the first. For `groups` and `group` see
  // Run::as_work().
  WorkPtr enter(std::unique_ptr<Run> run, const std::shared_ptr<OpenGroups>& groups,
                const std::shared_ptr<OpenGroup>& group);
  // Returns an idle run for which `fits(run)` is true, or null if there is none.
  template <class Fits>
  std::unique_ptr<Run> take_idle(Fits&& fits) {
    const Lock lock(mutex_);
    for (std::size_t i = idle_.size(); i > 0; --i) {
      if (!fits(*idle_[i - 1])) continue;
      std::unique_ptr<Run> run = std::move(idle_[i - 1]);
      idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i - 1));
      return run;
    }
    return nullptr;
  }
  // The fast path of a call that may end at once. If the queue is empty, calls `begin(run)` with an
  // idle run, or with one that `make()` creates. `begin` starts the run and may poll for a moment
  // until it ends; meanwhile all other threads that use this queue wait. If the run has not ended
  // then, it is in the queue and returned in `begun`. Returns false if no run was begun.
  template <class Make, class Begin>
  bool begin_at_once(std::unique_ptr<Run>& begun, Make&& make, Begin&& begin) {
    const Lock lock(mutex_);
    if (!runs_.empty() || progress_held_ || !skipped_.empty() || !aborted_.is_ok()) return false;
    if (idle_.empty()) idle_.push_back(make());
    Run& run = *idle_.back();
    begin(run);
    if (run.ended()) return true;
    runs_.push_back(&run);  // does not throw: there is capacity
    begun = std::move(idle_.back());
    idle_.pop_back();
    return true;
  }
  // Drives the runs of the queue until `run` has ended or the context ends. The end of the context
  // does not end `run`.
  WaitEnd drive(const Run& run, const WaitContext& context);
  void end(Run& run, const Status& why);  // afterwards `run` has ended
  // Makes as much progress with the first runs as is possible without waiting. Does nothing if
  // another thread drives them.
  void progress();
  void notify(Run& run, CompletionSink* notifier, uint64_t token);  // see Work::notify
  void release(std::unique_ptr<Run> run);  // withdraws the run if it has not ended; keeps it for reuse
  // Ends call `sequence` with `why` if it has not ended. Messages that peers send for it are
  // discarded.
  void cancel(uint64_t sequence, const Status& why);
  void wake();                    // the first run checks again what it waits for
  bool is_idle();                 // true: the queue is empty, and no thread drives a run
  void abort(const Status& why);  // ends every run, also later ones

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr std::size_t kMostIdle = 16;
  void start_first(Lock& lock);        // mutex_ held, progress lock free
  void hold_progress();                // mutex_ held
  void release_progress();             // mutex_ held: removes the runs that have ended
  bool is_held(const Run& run) const;  // mutex_ held
  void end(Lock& lock, Run& run, const Status& why);
  void keep(std::unique_ptr<Run> run);  // mutex_ held: for reuse
  void discard_due();                   // mutex_ held
  class Probed;
  void notify_if_due();  // mutex_ held
  WaitEnd wait_for_progress(Lock& lock, const WaitContext& context);

  Reactor& reactor_;
  const uint32_t group_;
  const Discard discard_;
  std::mutex mutex_;  // guards the members below, and the state of runs that have not started
  std::condition_variable progress_released_;
  bool progress_held_ = false;  // a thread holds the progress lock and drives the first run
  // the thread that holds the progress lock is inside its interrupt probe, where it does not touch
  // the queue or the run
  bool in_probe_ = false;
  std::vector<Run*> runs_;
  std::vector<std::unique_ptr<Run>> idle_;  // the most recently used one is at the end
  // the first run, if its owner released it while the driving thread was in its interrupt probe
  std::unique_ptr<Run> dropped_;
  // numbers of calls that ended before they started; `discard_` is called for each when all earlier
  // calls have ended
  std::vector<uint64_t> skipped_;
  Status aborted_;
  Scratch scratch_;  // used by the holder of the progress lock
};

}  // namespace pc
