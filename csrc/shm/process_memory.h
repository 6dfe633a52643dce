// Reads another process's private memory in one copy, if the kernel lets this process
// (process_vm_readv(2)): the permissions are those of a debugger. No process's permissions are
// changed; whether it works is found out by trying.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace pc {

// Fills `into` from `address` in process `pid`. After an error `into` may be partly filled. Returns
// kUnsupported if the kernel forbids it; kSystem if that process has no such memory, or none that
// the kernel copies (a device's); kPeerFailure if the process does not exist any more.
Status read_process_memory(pid_t pid, uint64_t address, std::span<std::byte> into);

}  // namespace pc
