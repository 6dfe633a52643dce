// The GPUs that are visible to this process, and their capabilities. Querying them creates no
// context.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

struct DeviceInfo {
  int ordinal = -1;
  CUdevice handle = -1;
  std::string name;
  std::string pci_bus_id;    // "0000:1b:00.0"
  std::string uuid;          // "GPU-8f6d...", as nvidia-smi -L prints it
  int major = 0, minor = 0;  // compute capability
  uint64_t total_nbytes = 0;
  int multiprocessors = 0;
  // Streams can write values to memory and wait for values there. Every driver that has the
  // functions of CUDA 12.0 supports this. The attribute in cuda.h describes an older version of the
  // functions.
  bool stream_values = false;
  bool flushes_remote_writes = false;
  bool shareable_memory = false;  // memory can be exported as a file descriptor; see ShareableMemory
  bool ipc_events = false;
};

Result<DeviceInfo> describe_device(const Driver& driver, int ordinal);
// Returns true if kernels and copies of `device` may access memory of `peer`, which may be `device`
// itself.
Result<bool> can_access_peer(const Driver& driver, const DeviceInfo& device, const DeviceInfo& peer);

}  // namespace pc::cuda
