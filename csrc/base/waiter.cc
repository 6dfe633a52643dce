#include "base/waiter.h"

#include <sched.h>

namespace pc {

Waiter::Polls Waiter::flags() {
  static const std::chrono::duration<double, std::nano> pause = [] {
    constexpr int kPauses = 64;
    TimePoint::duration shortest = TimePoint::duration::max();
    for (int i = 0; i < 5; ++i) {  // repeated, because the process may be preempted during one measurement
      const TimePoint began = now();
      for (int k = 0; k < kPauses; ++k) cpu_pause();
      shortest = std::min(shortest, now() - began);
    }
    return std::chrono::duration<double, std::nano>(shortest) / kPauses;
  }();
  const auto polls = [](std::chrono::nanoseconds time) {
    return std::clamp(static_cast<int>(time / std::max(pause, std::chrono::duration<double, std::nano>(1))),
                      1, 5000);
  };
  using std::chrono::nanoseconds;
  return {polls(nanoseconds(90)), polls(nanoseconds(45'000)), polls(nanoseconds(350))};
}

bool Waiter::yield_was_preempted() {
  const TimePoint before = now();
  sched_yield();
  // If nothing else can run, a yield takes 0.3 to 0.5 us; a switch to another process and back
  // takes at least 2 us.
  return now() - before > std::chrono::nanoseconds(1500);
}

WaitEnd Waiter::check(const WaitContext& context) {
  if (context.abort_word != nullptr && context.abort_word->load(std::memory_order_acquire) != 0) {
    return WaitEnd::kAborted;
  }
  const TimePoint now = pc::now();
  if (now >= context.deadline.when()) return WaitEnd::kTimeout;
  if (context.watch != nullptr) context.watch->look(now);
  return context.is_interrupted() ? WaitEnd::kInterrupted : WaitEnd::kReady;
}

bool WaitContext::is_interrupted() const {
  if (interrupted == nullptr || !*interrupted) return false;
  if (probe_scopes == nullptr) return (*interrupted)();
  WaitContext outer = *this;
  outer.probe_scopes = probe_scopes->outer();
  struct Inside {
    explicit Inside(ProbeScope& within) : scope(within) { scope.enter(); }
    ~Inside() { scope.leave(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ProbeScope& scope;
  };
  const Inside inside(*probe_scopes);
  return outer.is_interrupted();
}

}  // namespace pc
