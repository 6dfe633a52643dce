#include "bindings/calls/group_hold.h"

#include "bindings/python/ref.h"
#include "bindings/state/without_gil.h"
#include "gpu/device_groups.h"

namespace pc {

// A group that has joined on its GPUs stays until the end of the world, because what it has there refers to it.
GroupHold::~GroupHold() {
  std::shared_ptr<Runtime> runtime = session_->runtime;
  if (session_->forked || runtime == nullptr || !holds_gil()) return;
  std::shared_ptr<DeviceGroups> gpus = session_->gpus;
  const WithoutGil released;
  if (gpus == nullptr || !gpus->knows(communicator_)) runtime->close_group(communicator_);
  gpus.reset();     // before the runtime, which it uses
  runtime.reset();  // it may be the last reference, and letting it go may wait
}

}  // namespace pc
