// Arrays in the host's memory. A call has ended when it returns, so that each call has its own
// time.
#pragma once

#include <memory>

#include "bench/measure.h"

namespace pc::bench {

// `one_clock`: all ranks read the same clock.
std::unique_ptr<MeasuredDevice> host_device(Communicator& group, bool one_clock);

}  // namespace pc::bench
