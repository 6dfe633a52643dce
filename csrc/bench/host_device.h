// Arrays in the host's memory. A call has ended when it returns, so that each has a time of its own.
#pragma once

#include <memory>

#include "bench/measure.h"

namespace pc::bench {

// `one_clock`: all ranks read the same one.
std::unique_ptr<MeasuredDevice> host_device(Communicator& group, bool one_clock);

}  // namespace pc::bench
