// Classifies an address: the kind of memory, the device, and the allocation that contains it.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

enum class MemoryKind : uint8_t {
  kHost,        // ordinary memory, unknown to the driver
  kRegistered,  // pinned host memory: the GPU copies it directly
  kDevice,
  kManaged,  // migrates between host and device; treat it as host memory
};
std::string_view name_of(MemoryKind kind);

struct PointerInfo {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;  // ordinal of the device; -1 for kHost
  // The context in which the memory was allocated or registered. Null for memory of pools and for
  // mapped memory, which belong to no context: use the device's primary context for them.
  CUcontext context = nullptr;
  // begin of the allocation, or of the reserved addresses for mapped memory; 0: unknown
  CUdeviceptr base = 0;
  uint64_t nbytes = 0;  // size of the allocation
  uint64_t id = 0;      // id of the allocation, never reused in this process
  bool ipc = false;     // export_memory() can export it to other processes
};

// Needs no current context. `at` may be any address: it is not dereferenced.
Result<PointerInfo> classify_pointer(const Driver& driver, CUdeviceptr at);

}  // namespace pc::cuda
