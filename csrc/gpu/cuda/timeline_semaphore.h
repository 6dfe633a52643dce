// Increasing numbers for which streams wait. The host raises such a number by a plain store, which
// works even while the driver is busy.
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
// wait after the last reference to this object is gone. So the memory is never freed, and the next
// semaphore that uses the memory continues from its current number.
class TimelineSemaphore {
 public:
  TimelineSemaphore(const TimelineSemaphore&) = delete;
  TimelineSemaphore& operator=(const TimelineSemaphore&) = delete;
  ~TimelineSemaphore();

  uint32_t value() const { return word().load(std::memory_order_acquire); }
  bool has_reached(uint32_t value) const { return static_cast<int32_t>(this->value() - value) >= 0; }
  // Values must not decrease, so the caller must coordinate all threads that signal.
  void signal(uint32_t value) { word().store(value, std::memory_order_release); }
  // Signals when the stream reaches this point. The same rule applies as for signal(). The stream's
  // context must be current.
  Status signal_on(CUstream stream, uint32_t value) const;
  // Queues a fill and a value write to unused bytes beside the number, so that the driver loads now
  // what it needs for the first use of these operations. The stream's context must be current.
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
  // Returns a semaphore on which any stream of this process may wait. Returns null if the driver
  // does not support waits for values in memory.
  Result<std::shared_ptr<TimelineSemaphore>> take(const Context& context);

 private:
  const std::shared_ptr<TimelineSemaphore::FreeList> free_list_;
};

}  // namespace pc::cuda
