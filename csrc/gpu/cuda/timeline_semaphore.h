// Increasing numbers that streams wait for. The host raises one by a plain store, even while the
// driver is busy.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda/context.h"

namespace pc::cuda {

class SemaphorePool;

// Comparisons are cyclic, as for await_value(). Thread-safety: all methods. A stream may reach a
// wait after the last reference is gone: the memory is never freed, and its next user continues
// from the current number.
class TimelineSemaphore {
 public:
  TimelineSemaphore(const TimelineSemaphore&) = delete;
  TimelineSemaphore& operator=(const TimelineSemaphore&) = delete;
  ~TimelineSemaphore();

  uint32_t value() const { return word().load(std::memory_order_acquire); }
  bool has_reached(uint32_t value) const { return static_cast<int32_t>(this->value() - value) >= 0; }
  // Values must not decrease: the caller coordinates with the other signalling threads.
  void signal(uint32_t value) { word().store(value, std::memory_order_release); }
  // Signals when the stream reaches this point. The same rule holds. The stream's context must be
  // current.
  Status signal_on(CUstream stream, uint32_t value) const;
  // Fills and writes bytes beside the number on the stream, so that whatever the driver loads on
  // first use of either operation is loaded then. The stream's context must be current.
  Status warm_up(CUstream stream) const;
  // Work queued on `stream` from now on waits until the number is at least `value`. The stream's
  // context must be current.
  Status wait_on(CUstream stream, uint32_t value) const;

 private:
  friend class SemaphorePool;
  struct FreeList;
  TimelineSemaphore(std::shared_ptr<FreeList> free_list, std::shared_ptr<const Driver> driver, uint32_t* at);
  std::atomic_ref<uint32_t> word() const { return std::atomic_ref<uint32_t>(*at_); }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(at_); }

  const std::shared_ptr<FreeList> free_list_;
  const std::shared_ptr<const Driver> driver_;
  uint32_t* const at_;
};

// Provides and reuses semaphores. Thread-safety: all methods.
class SemaphorePool {
 public:
  SemaphorePool();
  // Any stream of this process may wait for it. Returns null if the driver lets no stream wait for
  // memory.
  Result<std::shared_ptr<TimelineSemaphore>> take(const Context& context);

 private:
  const std::shared_ptr<TimelineSemaphore::FreeList> free_list_;
};

}  // namespace pc::cuda
