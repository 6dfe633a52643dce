// The host waits for a GPU by polling. It never uses cuEventSynchronize(), which no deadline, death
// of a peer or Ctrl-C can end.
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
  std::function<void(std::chrono::microseconds)> nap = {};  // empty: sleeps
};

// Returns kReady when the work before the last record of `event` is done. An error is trouble()'s
// or the GPU's. It must not be used for events or streams that are being captured. It does not
// disturb captures of other threads.
Result<WaitEnd> wait_on_host(const Driver& driver, CUevent event, const HostWait& wait);
// Waits in the same way for any condition: `is_done` returns false, true or an error.
Result<WaitEnd> wait_on_host(const std::function<Result<bool>()>& is_done, const HostWait& wait);

}  // namespace pc::cuda
