// The host waits for a GPU by asking. Never by cuEventSynchronize(), which nothing can end: not a deadline, not a peer's death,
// not Ctrl-C.
#pragma once

#include <functional>

#include "base/waiter.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// What a wait for a GPU looks at besides its event.
struct HostWait {
  WaitContext context;
  // Whether something happened because of which the event will never come: a communicator's error, say. Asked before
  // each nap; not OK ends it. May be empty.
  std::function<Status()> trouble = {};
  std::function<void(std::chrono::microseconds)> nap = {};  // empty: sleeps
};

// kReady: what `event` was last recorded for is done. Errors: trouble()'s, or what the GPU answers. Must not be used for events
// or streams that are being captured; disturbs nobody else's capture.
Result<WaitEnd> wait_on_host(const Driver& driver, CUevent event, const HostWait& wait);
// The same for any question that says "not yet" (false), "yes" or what went wrong.
Result<WaitEnd> wait_on_host(const std::function<Result<bool>()>& is_done, const HostWait& wait);

}  // namespace pc::cuda
