// A device's primary context, the one that every library of a process shares, and making it current for a while. We never make
// another: memory and streams of torch and CuPy belong to the primary one.
#pragma once

#include <memory>
#include <utility>

#include "gpu/cuda/device.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// Makes a context current in this thread and puts back what was current before. Nearly every call of the driver wants that, and
// every function of this layer that does says so. Nests.
// Thread-safety: belongs to the thread that made it. The driver must outlive it.
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
  const Driver* driver_;  // null: nothing to put back
  CUcontext before_;
};

// The primary context of one device. It is retained and never released: releasing the last reference would destroy memory and
// streams of whoever still has some, and a process has one per device.
// Thread-safety: an immutable value; copies mean the same context.
class Context {
 public:
  static Result<Context> primary(std::shared_ptr<const Driver> driver, int ordinal);

  Result<ContextGuard> enter() const { return ContextGuard::enter(*driver_, context_); }
  // Lets kernels and copies of this device touch memory of the other's. Enabled already is fine.
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
