// How much more memory this process may allocate before the kernel begins to kill processes. The
// kernel grants every request for shared memory. When no memory is left, it kills a process, which
// need not be the one that made the request.
#pragma once

#include <cstdint>
#include <string>

#include "base/export.h"

namespace pc {

// Returns a number of bytes: the memory that the machine has available, or the memory that the
// limits of this process's control groups (containers, batch jobs) leave, whichever is less.
// Returns UINT64_MAX if the kernel reports neither. Tests set `root`, the folder that contains
// /proc and /sys.
PC_EXPORT uint64_t available_memory(const std::string& root = "");

}  // namespace pc
