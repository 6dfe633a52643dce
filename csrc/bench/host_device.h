// Arrays in the host's memory. A call has ended when it returns, so each call is timed by itself.
#pragma once

#include <memory>

#include "bench/measure.h"

namespace pc::bench {

// Pass `one_clock` if all ranks read the same clock.
std::unique_ptr<MeasuredDevice> host_device(Communicator& group, bool one_clock);

}  // namespace pc::bench
