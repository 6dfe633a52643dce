// Reads another process's private memory in one copy (process_vm_readv(2)). The kernel requires the
// same permissions as for a debugger. No process's permissions are changed; only an attempt shows
// whether a read is permitted.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace pc {

// Fills `into` from `address` in process `pid`. After an error `into` may be partly filled. Returns
// kUnsupported if the kernel forbids the read, kSystem if that process has no memory at `address`
// or the kernel cannot copy it (a device's memory), and kPeerFailure if the process no longer
// exists.
Status read_process_memory(pid_t pid, uint64_t address, std::span<std::byte> into);

}  // namespace pc
