#include "base/waiter.h"

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pc {

void Waiter::cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool Waiter::yield_gave_way() {
  const TimePoint before = now();
  sched_yield();
  // With nothing else to run a yield takes 0.3 to 0.5 us; a switch to another process and back at least 2 us.
  return now() - before > std::chrono::nanoseconds(1500);
}

WaitEnd Waiter::check(const WaitContext& context) {
  if (context.abort_word != nullptr && context.abort_word->load(std::memory_order_acquire) != 0) {
    return WaitEnd::kAborted;
  }
  const TimePoint now = std::chrono::steady_clock::now();
  if (now >= context.deadline.when()) return WaitEnd::kTimeout;
  if (context.watch != nullptr) context.watch->look(now);
  if (context.interrupted != nullptr && *context.interrupted && (*context.interrupted)()) {
    return WaitEnd::kInterrupted;
  }
  return WaitEnd::kReady;
}

}  // namespace pc
