// Determines by a trial whether the ranks of a group can access each other's arrays on GPUs: each
// rank opens memory that every other rank exports, and checks the value in it.
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
  std::span<const std::byte> kernels = {};  // see embedded_kernels()
  // Shared by all groups of a process, for the life of the process. If it is null, the group gets
  // its own.
  std::shared_ptr<IpcMappings> mappings = {};
  std::shared_ptr<Abandoned> abandoned = {};  // see DeviceCalls::Resources
  bool by_handles = false;                    // use handles even between ranks of one process
};

// All members call it like any collective. Returns kUnsupported on all of them with the same
// message if they cannot access each other's arrays. If one rank fails after the others have begun
// the trial, the group ends.
Result<std::unique_ptr<cuda::DeviceExecutor>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const IpcResources& resources, double timeout_s);

}  // namespace pc
