// A device's primary context, which all libraries of a process share, and a guard that makes a
// context current for a while. This library never creates another context, because memory and
// streams of torch and CuPy belong to the primary context.
#pragma once

#include <memory>
#include <utility>

#include "gpu/cuda/device.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// Makes a context current in this thread, and restores the previous context when it is destroyed.
// Nearly every driver call requires a current context. Functions of this layer that expect the
// caller to provide it document this. Guards may be nested. Thread-safety: belongs to the thread
// that made it. The driver must outlive it.
class ContextGuard {
 public:
  static Result<ContextGuard> enter(const Driver& driver, CUcontext context);
  ContextGuard(ContextGuard&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)),
        before_(other.before_) {}
  ContextGuard& operator=(ContextGuard&&) = delete;
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard() {
    if (driver_ != nullptr) (void)driver_->cuCtxSetCurrent(before_);
  }

 private:
  ContextGuard(const Driver* driver, CUcontext before) : driver_(driver), before_(before) {}
  const Driver* driver_;  // null: nothing to restore
  CUcontext before_;
};

// The primary context of one device. It is retained and never released, because releasing the last
// reference would destroy memory and streams that are still in use. A process has only one primary
// context per device, so this leaks little. Thread-safety: an immutable value; copies refer to the
// same context.
class Context {
 public:
  static Result<Context> primary(std::shared_ptr<const Driver> driver, int ordinal);

  Result<ContextGuard> enter() const { return ContextGuard::enter(*driver_, context_); }
  // Allows kernels and copies of this device to access memory of `peer`. Returns OK also if this
  // was allowed before.
  Status enable_peer(const Context& peer) const;
  struct FreeMemory {
    uint64_t free_nbytes = 0, total_nbytes = 0;
  };
  Result<FreeMemory> available_memory() const;
  std::string available_text() const;  // "13 MiB of 81559 MiB are free"

  const Driver& driver() const { return *driver_; }
  const std::shared_ptr<const Driver>& shared_driver() const { return driver_; }
  CUcontext get() const { return context_; }
  CUdevice device() const { return device_; }
  int ordinal() const { return ordinal_; }

 private:
  Context(std::shared_ptr<const Driver> driver, CUcontext context, CUdevice device, int ordinal)
      : driver_(std::move(driver)),
        context_(context),
        device_(device),
        ordinal_(ordinal) {}
  std::shared_ptr<const Driver> driver_;
  CUcontext context_;
  CUdevice device_;
  int ordinal_;
};

}  // namespace pc::cuda
