// Waits on a condition variable that also end at a deadline or on Ctrl-C.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/status.h"
#include "base/waiter.h"

namespace pc {

// The time between two checks for conditions that no condition variable signals: Ctrl-C and the
// deadline.
inline constexpr std::chrono::milliseconds kWaitSlice{20};

// Waits until `ready()` returns true or an error. `ready()` returns a Result<bool> and is called
// with the lock held. Returns kTimeout if the context's deadline passes, and kInterrupted if its
// probe reports Ctrl-C. The lock is released during each sleep and while the probe runs signal
// handlers.
template <class Ready>
Status wait_in_slices(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                      const WaitContext& context, Ready&& ready) {
  for (;;) {
    PC_ASSIGN_OR_RETURN(const bool is_ready, ready());
    if (is_ready) return Status::ok();
    if (context.deadline.remaining_s() <= 0) return Status(Code::kTimeout, "the deadline has passed");
    changed.wait_for(lock, kWaitSlice);
    lock.unlock();
    const bool stopped = context.is_interrupted();
    lock.lock();
    if (stopped) return Status(Code::kInterrupted, "interrupted");
  }
}

}  // namespace pc
