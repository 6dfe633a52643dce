// Starts every thread of the runtime. Each has a name for top -H and gdb. All signals are blocked
// in it, because the user's threads handle signals.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace pc {

// `name` may have at most 15 characters. `what` begins the text of an error, for example "starting
// the progress thread". Fails if the system cannot create another thread.
Status start_thread(std::thread& thread, const char* name, std::string_view what, std::function<void()> run);

}  // namespace pc
