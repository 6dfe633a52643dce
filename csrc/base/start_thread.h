// Starts every thread of the runtime: with all signals blocked, since the user's threads handle
// them, and with a name for top -H and gdb.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace pc {

// `name` has at most 15 characters. `what` begins the error text: "starting the progress thread".
// Fails if the system has no more threads.
Status start_thread(std::thread& thread, const char* name, std::string_view what, std::function<void()> run);

}  // namespace pc
