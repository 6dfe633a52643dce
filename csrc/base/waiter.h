// The one adaptive waiter: a short spin with an adaptive budget, then sched_yield, then a blocking
// sleep in slices of at most 50 ms. Each slice checks the deadline, the abort word and the
// interrupt probe. Measured: a sleeping thread takes about 28 us to wake up on another core, a spin
// with yields 0.3 us. A spin without yields is 1000x slower when there are more ranks than cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/deadline.h"
#include "base/status.h"

namespace pc {

// Detects that a wait takes long. The waiting thread calls look() in every slice of a sleeping
// wait, without locks.
class WaitWatch {
 public:
  virtual void look(TimePoint now) = 0;

 protected:
  ~WaitWatch() = default;
};

// Is notified when another process or thread has just run on the core of the waiting thread. Called
// in the waiting thread while it stays awake.
class CoreWatch {
 public:
  virtual void preempted() = 0;

 protected:
  ~CoreWatch() = default;
};

// Is notified before and after the interrupt probe of a wait runs. The probe is foreign code that
// may take any time and call anything. Called in the waiting thread.
class ProbeScope {
 public:
  virtual void enter() = 0;  // the probe is about to run
  virtual void leave() = 0;  // it has returned
  ProbeScope* outer() const { return outer_; }

 protected:
  // makes this the innermost scope of `context` and of copies made from it later
  explicit ProbeScope(struct WaitContext& context);
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;
  ~ProbeScope() = default;

 private:
  ProbeScope* const outer_;
};

// What every wait in this process checks besides its own condition. A WaitContext is freely
// copyable and owns nothing.
struct WaitContext {
  Deadline deadline;
  const std::atomic<uint32_t>* abort_word = nullptr;  // not 0 once the operations of this group are aborted
  // returns true if Ctrl-C is pending; called in slices only
  const std::function<bool()>* interrupted = nullptr;
  WaitWatch* watch = nullptr;
  ProbeScope* probe_scopes = nullptr;  // the innermost scope; null if there is none

  bool is_interrupted() const;  // calls the probe, if there is one
};
inline ProbeScope::ProbeScope(WaitContext& context) : outer_(std::exchange(context.probe_scopes, this)) {}

enum class WaitEnd : uint8_t { kReady, kTimeout, kAborted, kInterrupted };

// Thread-safety: one thread at a time. Each call site that waits keeps its own Waiter, because a
// Waiter adapts its spin budget to the earlier waits.
class Waiter {
 public:
  // Numbers of polls: `min` and `max` limit the polls before the first yield; `between` is the
  // number of polls after a yield during which no other thread ran on the core.
  struct Polls {
    int min, max, between;
  };
  static constexpr Polls kSockets{1, 64, 0};  // for sockets: each poll is a system call, about 20 us in all
  // For flags in memory: each poll is a load and a pause, at most 45 us in all. The pause is
  // measured, because it takes 10 ns on one processor and 60 ns on another.
  static Polls flags();

  // `oversubscribed` means more local ranks than usable cores; the waiter then starts with almost
  // no spinning.
  explicit Waiter(bool oversubscribed = false, const Polls& polls = kSockets, CoreWatch* core = nullptr)
      : polls_(polls),
        budget_(oversubscribed ? polls.min : polls.max),
        core_(core) {}

  // Waits without sleeping: spins, then yields for up to 200 us. `ready()` polls once and returns
  // true if the wait is over. Returns true as soon as `ready()` does, or false if the thread should
  // now sleep.
  template <class Ready>
  bool briefly(Ready&& ready) {
    if (const int used = spin(budget_, ready); used >= 0) return grow(used), true;
    const TimePoint began = now();
    for (bool first = true; now() - began < kYieldFor; first = false) {
      const bool preempted = yield_was_preempted();
      if (preempted && first) {  // another thread needs this core
        shrink();
        if (core_ != nullptr) core_->preempted();
      }
      if (ready()) {
        if (!preempted && first) grow(budget_);  // a slightly larger budget would have sufficed
        return true;
      }
      if (!preempted && spin(polls_.between, ready) >= 0) return true;
    }
    return false;
  }

  // Waits like briefly(), and then asleep. `sleep(ms)` blocks until an event may have happened or
  // about `ms` milliseconds have passed. Both callbacks run in this thread only.
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

  static void pause() { cpu_pause(); }  // for callers that poll for an event that is about to happen

  // Checks everything in `context` once. Returns kReady if the wait may go on.
  static WaitEnd check(const WaitContext& context);

 private:
  static constexpr std::chrono::microseconds kYieldFor{200};  // time spent yielding before the first sleep
  static void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static bool yield_was_preempted();  // calls sched_yield; returns true if another thread ran meanwhile
  // Returns how many polls failed before `ready()` returned true, or -1 if all `polls` failed.
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
