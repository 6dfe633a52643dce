// Detects Ctrl-C for a thread that cannot react to it because it is blocked in a call of a
// third-party library.
#pragma once

#include <pthread.h>

#include <functional>

#include "base/clock.h"

namespace pc {

// Returns a function that reports whether Ctrl-C was pressed after `since` and raises
// KeyboardInterrupt in `thread`. Python raises it only in the main thread, and only if the program
// has no handler of its own; such a handler runs when the call has ended. The function works in any
// thread. It does not wait for the GIL, so its first results may be false. Returns an empty
// function with a Python error set.
std::function<bool(pthread_t thread, TimePoint since)> ctrl_c_probe();

}  // namespace pc
