// Ctrl-C for a thread that cannot hear it, because it is stuck in a call of somebody else's library.
#pragma once

#include <functional>

#include "base/clock.h"

namespace pc {

// Asks, in any thread and without waiting for the GIL, whether Ctrl-C has come since then and raises KeyboardInterrupt, as Python
// has it. Where the program has a handler of its own, the answer is no: that handler runs when the call has ended. It may take
// some rounds of asking until the answer is yes.
std::function<bool(TimePoint since)> hears_ctrl_c();

}  // namespace pc
