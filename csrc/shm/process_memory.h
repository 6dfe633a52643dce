// Reading another process's private memory in one copy, where the kernel lets this process (process_vm_readv(2)): it asks the
// same as for a debugger. Nobody's rights are changed here; whether it works is found out by trying.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace pc {

// Fills `into` with what process `pid` has at `address`. An error may leave it filled in part: kUnsupported, the kernel forbids
// it; kSystem, that process has no such memory, or none that the kernel copies (a device's); kPeerFailure, it is gone.
Status read_process_memory(pid_t pid, uint64_t address, std::span<std::byte> into);

}  // namespace pc
