// Numbers that only grow and that streams wait for. The host raises one by a plain store, whatever the driver is busy with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda/context.h"

namespace pc::cuda {

class SemaphorePool;

// Counts as a circle, as await_value() does. Thread-safety: all methods. A stream may come to a wait when nobody has this any more:
// its memory is never given back to the driver, and who has it next goes on from where the number stands.
class TimelineSemaphore {
 public:
  TimelineSemaphore(const TimelineSemaphore&) = delete;
  TimelineSemaphore& operator=(const TimelineSemaphore&) = delete;
  ~TimelineSemaphore();

  uint32_t value() const { return word().load(std::memory_order_acquire); }
  bool has_reached(uint32_t value) const { return static_cast<int32_t>(this->value() - value) >= 0; }
  // Never less than before: whoever signals knows what others do.
  void signal(uint32_t value) { word().store(value, std::memory_order_release); }
  // Likewise, when the stream comes to that. Its context must be current.
  Status signal_on(CUstream stream, uint32_t value) const;
  // Fills and writes bytes beside the number on the stream: what the driver loads for either when it is first used is there then.
  // Its context must be current.
  Status warm_up(CUstream stream) const;
  // What is queued on `stream` from now on waits until the number is at least this. Its context must be current.
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

// Where semaphores come from and go back to. Thread-safety: all methods.
class SemaphorePool {
 public:
  SemaphorePool();
  // Any stream of this process may wait for it. Null: the driver lets no stream wait for memory.
  Result<std::shared_ptr<TimelineSemaphore>> take(const Context& context);

 private:
  const std::shared_ptr<TimelineSemaphore::FreeList> free_list_;
};

}  // namespace pc::cuda
