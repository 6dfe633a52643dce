// Determines whether the ranks of a group can access each other's arrays on GPUs, by a trial: each
// rank opens memory that every other rank exports, and checks the value there.
#pragma once

#include <memory>
#include <span>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/runtime.h"
#include "gpu/cuda/abandoned.h"
#include "gpu/cuda/device_executor.h"
#include "gpu/cuda/driver.h"
#include "gpu/ipc/ipc_mappings.h"

namespace pc {

struct IpcResources {
  std::shared_ptr<const cuda::Driver> driver;
  int device = 0;
  Logger log = Logger();
  std::span<const std::byte> kernels = {};  // embedded_kernels()
  // Shared by all groups of a process, for the life of the process. Null: a new one is created.
  std::shared_ptr<IpcMappings> mappings = {};
  std::shared_ptr<Abandoned> abandoned = {};  // DeviceCalls::Resources
  bool by_handles = false;                    // treat ranks of this process as those of other processes
};

// All members call it like any collective. Returns kUnsupported on all of them with the same
// message if they cannot access each other's arrays. A failure in the middle ends the group.
Result<std::unique_ptr<cuda::DeviceExecutor>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const IpcResources& resources, double timeout_s);

}  // namespace pc
