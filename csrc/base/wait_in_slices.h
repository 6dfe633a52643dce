// Waits between threads that notice Ctrl-C and deadlines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/status.h"
#include "base/waiter.h"

namespace pc {

// between two checks of what no condition variable signals
inline constexpr std::chrono::milliseconds kWaitSlice{20};

// Waits until `ready()`, which returns a Result<bool> and is called with the lock held, returns
// true or an error. Returns kTimeout or kInterrupted if the context's deadline passes or its probe
// reports Ctrl-C. The lock is released during each sleep and while signal handlers run.
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
