// Finds out whether the ranks of a group reach each other's arrays on GPUs, by doing it: each opens what every other shows, and
// reads there what it must hold.
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
  // Of all groups of a process, and as long as the process. Null: made for this one.
  std::shared_ptr<IpcMappings> mappings = {};
  std::shared_ptr<Abandoned> abandoned = {};  // DeviceCalls::Resources
  bool by_handles = false;                    // ranks of one process reach each other as those of others do
};

// All members call it, as they would call any collective. kUnsupported, on all of them with the same words: they do not. What
// fails in the middle ends the group.
Result<std::unique_ptr<cuda::DeviceExecutor>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const IpcResources& resources, double timeout_s);

}  // namespace pc
