// How every thread of ours begins: without signals, which are for the user's threads, and with a name for top -H and gdb.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace pc {

// `name`: at most 15 characters. `what`: for an error: "starting the progress thread". Errors: the system has no more threads.
Status start_thread(std::thread& thread, const char* name, std::string_view what, std::function<void()> run);

}  // namespace pc
