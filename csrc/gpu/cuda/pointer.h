// Classifies an address: its kind of memory, its device, and the allocation that contains it.
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
  int device = -1;  // its ordinal; kHost: -1
  // The context in which it was allocated or registered. Null for memory of pools and for mapped
  // memory, which belong to no context: use the device's primary context for them.
  CUcontext context = nullptr;
  CUdeviceptr base = 0;  // of the allocation (for mapped memory, of the reserved addresses); 0: unknown
  uint64_t nbytes = 0;   // of the allocation
  uint64_t id = 0;       // of the allocation: unique in this process for all time
  bool ipc = false;      // export_memory() can export it to other processes
};

// Needs no current context. `at` may be any address: it is not dereferenced.
Result<PointerInfo> classify_pointer(const Driver& driver, CUdeviceptr at);

}  // namespace pc::cuda
