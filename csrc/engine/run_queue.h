// The runs of one group, in issue order. They share one scratch memory and often the caller's arrays, so a run posts
// only when all earlier runs have ended; whoever waits for a later run first drives the earlier ones. One thread at a
// time holds the progress lock and makes progress; the others sleep until it is free or their own wait ends.
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
  // `discard(number)`: peers may be ahead with that call, which will not be run here; its turn has come.
  using Discard = std::function<void(uint64_t)>;
  RunQueue(Reactor& reactor, uint32_t group, Discard discard)
      : reactor_(reactor),
        group_(group),
        discard_(std::move(discard)) {
    runs_.reserve(kMostIdle);
    idle_.reserve(kMostIdle);  // release() puts runs there, where nothing may throw
  }
  uint32_t group() const { return group_; }

  // Puts a run last in the queue, and starts it if it is also the first. What it returns keeps the other two:
  // Run::as_work().
  WorkPtr enter(std::unique_ptr<Run> run, const std::shared_ptr<OpenGroups>& groups,
                const std::shared_ptr<OpenGroup>& group);
  // An idle run of those that were released; null: none for which `fits(run)`.
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
  // If nothing is in the queue: `begin(run)` starts an idle run, or one that `make()` makes, and may stay
  // awake for it for a moment. Unless it has ended then, it is in the queue, and `begun`. Meanwhile everybody
  // else here waits. False: it was not begun.
  template <class Make, class Begin>
  bool begin_at_once(std::unique_ptr<Run>& begun, Make&& make, Begin&& begin) {
    const Lock lock(mutex_);
    if (!runs_.empty() || progress_held_ || !skipped_.empty() || !aborted_.is_ok()) return false;
    if (idle_.empty()) idle_.push_back(make());
    Run& run = *idle_.back();
    begin(run);
    if (run.ended()) return true;
    runs_.push_back(&run);  // does not throw: there is room
    begun = std::move(idle_.back());
    idle_.pop_back();
    return true;
  }
  // Drives the queue until `run` has ended, or the context ends, which leaves it as it is.
  WaitEnd drive(const Run& run, const WaitContext& context);
  void end(Run& run, const Status& why);  // afterwards it has ended
  // Goes on with the first runs as far as that is possible without waiting. Nothing, if somebody drives them: he does so.
  void progress();
  void notify(Run& run, CompletionSink* notifier, uint64_t token);  // Work::notify
  void release(std::unique_ptr<Run> run);  // withdraws it if it has not ended; keeps it for reuse
  // The call of this number ends with `why`, if it has not ended; what comes for it from peers is discarded.
  void cancel(uint64_t sequence, const Status& why);
  void wake();                    // the first run looks around
  bool is_idle();                 // no run is in the queue, and no thread drives one
  void abort(const Status& why);  // ends every run, now and later

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr std::size_t kMostIdle = 16;
  void start_first(Lock& lock);        // mutex_ held, progress lock free
  void hold_progress();                // mutex_ held
  void release_progress();             // mutex_ held: removes what has ended
  bool is_held(const Run& run) const;  // mutex_ held
  void end(Lock& lock, Run& run, const Status& why);
  void keep(std::unique_ptr<Run> run);  // mutex_ held: to be used again
  void discard_due();                   // mutex_ held
  class Probed;
  void notify_if_due();  // mutex_ held
  WaitEnd wait_for_progress(Lock& lock, const WaitContext& context);

  Reactor& reactor_;
  const uint32_t group_;
  const Discard discard_;
  std::mutex mutex_;  // guards what follows, and the state of runs that have not started
  std::condition_variable progress_released_;
  bool progress_held_ = false;  // somebody holds the progress lock: the first run is theirs
  bool in_probe_ = false;       // ... and is inside its interrupt probe, where it touches nothing of ours
  std::vector<Run*> runs_;
  std::vector<std::unique_ptr<Run>> idle_;  // the one used last is at the end
  std::unique_ptr<Run> dropped_;  // the first run, if its owner let it go while another frame still drives it
  std::vector<uint64_t> skipped_;  // numbers that ended before their turn: to discard when it comes
  Status aborted_;
  Scratch scratch_;  // the progress lock's
};

}  // namespace pc
