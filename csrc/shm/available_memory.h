// How much more memory this process may allocate before the kernel begins to kill processes. The
// kernel grants every request for shared memory, and when no memory is left it kills some other
// process.
#pragma once

#include <cstdint>
#include <string>

#include "base/export.h"

namespace pc {

// In bytes: the smaller of what the machine has available and what the limits of this process's
// control groups (containers, batch jobs) leave. Returns UINT64_MAX if the kernel does not report
// it. `root` is where /proc and /sys are found, for tests.
PC_EXPORT uint64_t available_memory(const std::string& root = "");

}  // namespace pc
