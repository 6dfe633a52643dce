// What an address is: whose memory, where it lies, and the allocation that it is a part of.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

enum class MemoryKind : uint8_t {
  kHost,        // ordinary memory, unknown to the driver
  kRegistered,  // of the host, pinned: the GPU copies it without a detour
  kDevice,
  kManaged,  // moves between both by itself; to be treated as the host's
};
std::string_view name_of(MemoryKind kind);

struct PointerInfo {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;  // its ordinal; kHost: -1
  // Where it was allocated or registered. Null for memory of pools and for mapped memory, which belong to no context: the
  // device's primary one is right for them.
  CUcontext context = nullptr;
  CUdeviceptr base = 0;  // of the allocation (of mapped memory: of the reserved addresses); 0: not known
  uint64_t nbytes = 0;   // of the allocation
  uint64_t id = 0;       // of the allocation: no other of this process ever has it
  bool ipc = false;      // export_memory() can give it to other processes
};

// Needs no current context. `at` may be any address: nothing is read there.
Result<PointerInfo> classify_pointer(const Driver& driver, CUdeviceptr at);

}  // namespace pc::cuda
