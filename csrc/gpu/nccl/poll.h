// Polls NCCL, which offers no wait with a deadline.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/waiter.h"
#include "gpu/nccl/clock.h"

namespace pc::nccl {

// Returns the pause before the next query. The first queries have no pause, since most operations
// complete within microseconds; then the pause grows up to 5 ms.
constexpr std::chrono::microseconds pause_before(int question) {
  constexpr int kAtOnce = 64;
  if (question < kAtOnce) return std::chrono::microseconds(0);
  const int doublings = std::min((question - kAtOnce) / 4, 6);
  return std::min(std::chrono::microseconds(100 << doublings), std::chrono::microseconds(5000));
}

// Waits until `done()` is true, `stop` is set, or the context ends the wait. Returns kAborted if
// `stop` is set. Calls `done()` at least once.
template <class Done>
WaitEnd poll_until(Clock& clock, const WaitContext& context, const std::atomic<bool>& stop, Done&& done) {
  for (int question = 0;; ++question) {
    if (done()) return WaitEnd::kReady;
    if (stop.load(std::memory_order_acquire)) return WaitEnd::kAborted;
    if (context.abort_word != nullptr && context.abort_word->load(std::memory_order_acquire) != 0)
      return WaitEnd::kAborted;
    const TimePoint now = clock.now();
    if (now >= context.deadline.when()) return WaitEnd::kTimeout;
    const std::chrono::microseconds pause = pause_before(question);
    if (pause.count() > 0) {
      if (context.is_interrupted()) return WaitEnd::kInterrupted;
      if (context.watch != nullptr) context.watch->look(now);
    }
    clock.sleep(std::min<std::chrono::nanoseconds>(pause, context.deadline.when() - now));
  }
}

}  // namespace pc::nccl
