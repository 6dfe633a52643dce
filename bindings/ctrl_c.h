// Ctrl-C for a main thread that cannot hear it, because it is stuck in a call of somebody else's library.
#pragma once

#include <pthread.h>

#include <functional>

#include "base/clock.h"

namespace pc {

// Asks, in any thread without the GIL, whether Ctrl-C has come for that thread since then, and ends programs as Python has it. Where
// the program has a handler of its own, the answer is no: that handler decides once the call has ended. Empty: a Python error is
// set.
std::function<bool(pthread_t thread, TimePoint since)> hears_ctrl_c();

}  // namespace pc
