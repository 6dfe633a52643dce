// How much more memory this process may take before the kernel begins to end processes: it gives shared memory to whoever asks,
// and when there is none left it ends somebody else.
#pragma once

#include <cstdint>
#include <string>

#include "base/export.h"

namespace pc {

// Bytes: the least of what the machine has and what the limits of this process's control groups (containers, batch jobs) leave.
// UINT64_MAX where the kernel says nothing. `root` is where /proc and /sys are found, for tests.
PC_EXPORT uint64_t available_memory(const std::string& root = "");

}  // namespace pc
