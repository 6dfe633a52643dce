#include "comm/devices.h"

#include <utility>

namespace pc {

Result<std::shared_ptr<Devices>> LazyDevices::get() {
  const auto known = [this]() -> Result<std::shared_ptr<Devices>> {  // mutex_ is held
    if (devices_ == nullptr && ended_) return Status(Code::kNotInitialized, "the world was shut down");
    return devices_;
  };
  {
    const std::lock_guard lock(mutex_);
    PC_ASSIGN_OR_RETURN(std::shared_ptr<Devices> devices, known());
    if (devices != nullptr) return devices;
  }
  PC_ASSIGN_OR_RETURN(std::shared_ptr<Devices> made, make_());
  // Declared after `made`, so the lock is released before `made` is destroyed. `made` still holds
  // devices then if another thread created the devices first.
  const std::lock_guard lock(mutex_);
  if (devices_ == nullptr && !ended_) devices_ = std::move(made);
  return known();
}

std::shared_ptr<Devices> LazyDevices::made() const {
  const std::lock_guard lock(mutex_);
  return devices_;
}

bool LazyDevices::keep(const Communicator& group) const {
  std::shared_ptr<Devices> devices;  // declared before the lock: destroyed after unlock
  const std::lock_guard lock(mutex_);
  devices = devices_;
  return ended_ || (devices != nullptr && devices->knows(group));
}

Status LazyDevices::run(Communicator& group, UserCall call, double timeout_s) {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, get());
  return devices->run(group, std::move(call), timeout_s);
}

Result<std::shared_ptr<AsyncWork>> LazyDevices::begin(Communicator& group, UserCall call, AsyncOptions how) {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<Devices> devices, get());
  return devices->begin(group, std::move(call), std::move(how));
}

std::shared_ptr<Devices> LazyDevices::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  return devices_;
}

void LazyDevices::let_go() {
  std::shared_ptr<Devices> last;  // declared before the lock: destroyed after unlock
  const std::lock_guard lock(mutex_);
  last.swap(devices_);
}

Status LazyDevices::close(double timeout_s) {
  const std::shared_ptr<Devices> devices = end();
  const Status closed = devices == nullptr ? Status::ok() : devices->close(timeout_s);
  let_go();
  return closed;
}

void LazyDevices::abort(const Status& why) {
  const std::shared_ptr<Devices> devices = end();
  if (devices != nullptr) devices->abort(why);
  let_go();
}

}  // namespace pc
