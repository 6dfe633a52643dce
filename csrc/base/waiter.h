// The one adaptive waiter: a short spin whose budget adapts, then sched_yield, then a blocking sleep in slices of at
// most 50 ms in which deadline, abort word and interrupt probe are looked at. Evidence: a sleeping wake-up across cores
// costs about 28 us here, a yield-spin 0.3 us; a spin that does not yield collapses 1000x when there are more ranks than
// cores. Thresholds are therefore times, never counts.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/deadline.h"
#include "base/status.h"

namespace pc {

// Notices that a wait takes long. Looked at in every slice of a wait that sleeps, in the thread that waits, without locks.
class WaitWatch {
 public:
  virtual void look(TimePoint now) = 0;

 protected:
  ~WaitWatch() = default;
};

// Hears that another process or thread has just run on the core of a wait, which therefore is not the wait's alone. In the
// thread that waits, while it stays awake.
class CoreWatch {
 public:
  virtual void preempted() = 0;

 protected:
  ~CoreWatch() = default;
};

// Hears that the interrupt probe of a wait runs, which is other people's code, takes as long as it likes, and may call
// anything. In the thread that waits.
class ProbeScope {
 public:
  virtual void enter() = 0;  // the probe is about to run
  virtual void leave() = 0;  // it has returned
  ProbeScope* outer() const { return outer_; }

 protected:
  explicit ProbeScope(struct WaitContext& context);  // becomes the innermost of that, and of its copies
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;
  ~ProbeScope() = default;

 private:
  ProbeScope* const outer_;
};

// What every wait in this process looks at besides its own condition. Copied freely; holds no ownership.
struct WaitContext {
  Deadline deadline;
  const std::atomic<uint32_t>* abort_word = nullptr;   // non-zero: somebody ended this group's operations
  const std::function<bool()>* interrupted = nullptr;  // true: Ctrl-C is pending (asked in slices only)
  WaitWatch* watch = nullptr;
  ProbeScope* probe_scopes = nullptr;  // the innermost

  bool is_interrupted() const;  // asks the probe, if there is one
};
inline ProbeScope::ProbeScope(WaitContext& context) : outer_(std::exchange(context.probe_scopes, this)) {}

enum class WaitEnd : uint8_t { kReady, kTimeout, kAborted, kInterrupted };

// Thread-safety: one thread at a time. Keep one per waiting place (it remembers its spin budget).
class Waiter {
 public:
  // How often to poll before the first yield, and between yields for which nobody else wanted the core.
  struct Polls {
    int min, max, between;
  };
  static constexpr Polls kSockets{1, 64, 0};  // each poll is a system call: about 20 us in all
  // Each is a load and a pause: at most 45 us in all. Measured, since a pause takes 10 ns on one processor and 60 on the next.
  static Polls flags();

  // `oversubscribed`: more local ranks than usable cores; starts with next to no spinning.
  explicit Waiter(bool oversubscribed = false, const Polls& polls = kSockets, CoreWatch* core = nullptr)
      : polls_(polls),
        budget_(oversubscribed ? polls.min : polls.max),
        core_(core) {}

  // `ready()` polls once and says whether the wait is over. False: not within the time that is worth to stay awake for.
  template <class Ready>
  bool briefly(Ready&& ready) {
    if (const int used = spin(budget_, ready); used >= 0) return grow(used), true;
    const TimePoint began = now();
    for (bool first = true; now() - began < kYieldFor; first = false) {
      const bool preempted = yield_was_preempted();
      if (preempted && first) {  // somebody else needs this core
        shrink();
        if (core_ != nullptr) core_->preempted();
      }
      if (ready()) {
        if (!preempted && first) grow(budget_);  // nearly long enough
        return true;
      }
      if (!preempted && spin(polls_.between, ready) >= 0) return true;
    }
    return false;
  }

  // `sleep(ms)` blocks until something may have happened or about `ms` milliseconds have passed. Both are called from
  // this thread only.
  template <class Ready, class Sleep>
  WaitEnd wait(const WaitContext& context, Ready&& ready, Sleep&& sleep) {
    return briefly(ready) ? WaitEnd::kReady : wait_asleep(context, ready, sleep);
  }
  template <class Ready, class Sleep>
  static WaitEnd wait_asleep(const WaitContext& context, Ready&& ready, Sleep&& sleep) {
    for (;;) {
      const WaitEnd end = check(context);
      if (end != WaitEnd::kReady) return end;
      sleep(context.deadline.slice_ms());
      if (ready()) return WaitEnd::kReady;
    }
  }

  static void pause() { cpu_pause(); }  // for who waits for something that is about to happen

  static WaitEnd check(
      const WaitContext& context);  // looks once at everything in `context`; kReady: nothing to report

 private:
  static constexpr std::chrono::microseconds kYieldFor{200};  // of yielding before the first sleep
  static void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static bool yield_was_preempted();  // sched_yield; true if somebody else ran meanwhile
  // After how many polls it was ready; -1: it was not.
  template <class Ready>
  static int spin(int polls, Ready&& ready) {
    for (int i = 0; i < polls; ++i) {
      if (ready()) return i;
      cpu_pause();
    }
    return -1;
  }
  void grow(int used) {
    if (used > budget_ / 2) budget_ = std::min(budget_ * 2 + 1, polls_.max);
  }
  void shrink() { budget_ = std::max(budget_ / 8, polls_.min); }
  Polls polls_;
  int budget_;       // polls before the first yield
  CoreWatch* core_;  // may be null
};

}  // namespace pc
