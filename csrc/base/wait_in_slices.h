// Waits of threads for each other that hear Ctrl-C and deadlines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/status.h"
#include "base/waiter.h"

namespace pc {

inline constexpr std::chrono::milliseconds kWaitSlice{20};  // between two looks at what no condition tells

// Until `ready()`, a Result<bool> asked with the lock held, says yes, or what went wrong. kTimeout, kInterrupted: the context's.
// The lock is let go meanwhile, also while signal handlers run.
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
