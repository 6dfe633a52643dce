// Ctrl-C for a thread that cannot hear it, because it is stuck in a call of somebody else's library.
#pragma once

#include <pthread.h>

#include <functional>

#include "base/clock.h"

namespace pc {

// Asks, in any thread and without waiting for the GIL, whether Ctrl-C has come for that thread since then and raises
// KeyboardInterrupt there, as Python has it: in the main thread, unless the program has a handler of its own, which runs when the
// call has ended. It may take some rounds of asking until the answer is yes. Empty: a Python error is set.
std::function<bool(pthread_t thread, TimePoint since)> hears_ctrl_c();

}  // namespace pc
