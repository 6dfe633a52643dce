// The host waits for a GPU by polling. It never uses cuEventSynchronize(), because neither a
// deadline, nor the death of a peer, nor Ctrl-C can end that call.
#pragma once

#include <functional>

#include "base/waiter.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// What a wait for a GPU checks besides its event.
struct HostWait {
  WaitContext context;
  // Reports a failure after which the event will never complete, such as a communicator's error. It
  // is called before each sleep, and an error ends the wait. May be empty.
  std::function<Status()> trouble = {};
  // sleeps for the given time; empty: the default sleep
  std::function<void(std::chrono::microseconds)> nap = {};
};

// Returns kReady when the work before the last record of `event` is done. Returns an error if
// trouble() or the GPU reports one. It must not be used for an event of a stream that is being
// captured. It does not disturb captures of other threads.
Result<WaitEnd> wait_on_host(const Driver& driver, CUevent event, const HostWait& wait);
// Waits in the same way until `is_done` returns true or an error.
Result<WaitEnd> wait_on_host(const std::function<Result<bool>()>& is_done, const HostWait& wait);

}  // namespace pc::cuda
