// Detects Ctrl-C for a thread that cannot react to it because it is blocked in a call of a
// third-party library.
#pragma once

#include <pthread.h>

#include <functional>

#include "base/clock.h"

namespace pc {

// Returns a function that reports whether Ctrl-C was pressed after `since` and raises
// KeyboardInterrupt in `thread`. Python raises it in the main thread, unless the program has its
// own handler, which runs when the call has ended. The function works in any thread and does not
// wait for the GIL; it may return true only after some calls. Returns an empty function with a
// Python error set.
std::function<bool(pthread_t thread, TimePoint since)> ctrl_c_probe();

}  // namespace pc
