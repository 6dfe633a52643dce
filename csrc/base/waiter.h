// The one adaptive waiter: a short spin whose budget adapts, then sched_yield, then a blocking sleep in slices of at
// most 50 ms in which deadline, abort word and interrupt probe are looked at. Evidence: a sleeping wake-up across cores
// costs about 28 us here, a yield-spin 0.3 us; a spin that does not yield collapses 1000x when there are more ranks than
// cores. Thresholds are therefore times, never counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

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

// What every wait in this process looks at besides its own condition. Copied freely; holds no ownership.
struct WaitContext {
  Deadline deadline;
  const std::atomic<uint32_t>* abort_word = nullptr;   // non-zero: somebody ended this group's operations
  const std::function<bool()>* interrupted = nullptr;  // true: Ctrl-C is pending (asked in slices only)
  WaitWatch* watch = nullptr;
};
enum class WaitEnd : uint8_t { kReady, kTimeout, kAborted, kInterrupted };

// Thread-safety: one thread at a time. Keep one per waiting place (it remembers its spin budget).
class Waiter {
 public:
  // `crowded`: more local ranks than usable cores; starts with next to no spinning.
  explicit Waiter(bool crowded = false) : budget_(crowded ? kMinBudget : kMaxBudget) {}

  // `ready()` polls once and says whether the wait is over; `sleep(ms)` blocks until something may have happened or
  // about `ms` milliseconds have passed. Both are called from this thread only.
  template <class Ready, class Sleep>
  WaitEnd wait(const WaitContext& context, Ready&& ready, Sleep&& sleep) {
    for (int i = 0; i < budget_; ++i) {
      if (ready()) {
        grow(i);
        return WaitEnd::kReady;
      }
      cpu_pause();
    }
    const TimePoint began = now();
    for (bool first = true; now() - began < kYieldFor; first = false) {
      const bool gave_way = yield_gave_way();
      if (gave_way && first) shrink();  // somebody else needs this core
      if (ready()) {
        if (!gave_way && first) grow(budget_);  // nearly long enough
        return WaitEnd::kReady;
      }
    }
    for (;;) {
      const WaitEnd end = check(context);
      if (end != WaitEnd::kReady) return end;
      sleep(context.deadline.slice_ms(kMaxSliceMs));
      if (ready()) return WaitEnd::kReady;
    }
  }

  static WaitEnd check(
      const WaitContext& context);  // looks once at everything in `context`; kReady: nothing to report

 private:
  static constexpr int kMaxSliceMs = 50;
  static constexpr int kMinBudget = 1;
  static constexpr int kMaxBudget = 64;  // polls, each a system call for sockets: about 20 us
  static constexpr std::chrono::microseconds kYieldFor{200};  // of yielding before the first sleep
  static TimePoint now() { return std::chrono::steady_clock::now(); }
  static void cpu_pause();
  static bool yield_gave_way();  // sched_yield; true if somebody else ran meanwhile
  void grow(int used) {
    if (used > budget_ / 2) budget_ = budget_ * 2 + 1 < kMaxBudget ? budget_ * 2 + 1 : kMaxBudget;
  }
  void shrink() { budget_ = budget_ / 8 > kMinBudget ? budget_ / 8 : kMinBudget; }
  int budget_;  // polls before the first yield
};

}  // namespace pc
