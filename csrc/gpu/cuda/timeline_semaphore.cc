#include "gpu/cuda/timeline_semaphore.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "gpu/cuda/capture_mode.h"
#include "gpu/cuda/copy.h"
#include "gpu/cuda/stream_values.h"

namespace pc::cuda {

struct TimelineSemaphore::FreeList {
  std::mutex mutex;
  std::vector<uint32_t*> words;  // guarded by mutex; allocated words that are not in use
};

TimelineSemaphore::TimelineSemaphore(std::shared_ptr<FreeList> free_list,
                                     std::shared_ptr<const Driver> driver, uint32_t* at)
    : free_list_(std::move(free_list)),
      driver_(std::move(driver)),
      at_(at) {}

TimelineSemaphore::~TimelineSemaphore() {
  const std::lock_guard lock(free_list_->mutex);
  free_list_->words.push_back(at_);
}

Status TimelineSemaphore::signal_on(CUstream stream, uint32_t value) const {
  return write_value(*driver_, stream, address(), value);
}

Status TimelineSemaphore::warm_up(CUstream stream) const {
  const CUdeviceptr upper_half = address() + sizeof(uint32_t);
  PC_TRY(fill_bytes(*driver_, upper_half, 0, sizeof(uint32_t), stream));
  return write_value(*driver_, stream, upper_half, 0);
}

Status TimelineSemaphore::wait_on(CUstream stream, uint32_t value) const {
  return await_value(*driver_, stream, address(), value);
}

SemaphorePool::SemaphorePool() : free_list_(std::make_shared<TimelineSemaphore::FreeList>()) {}

Result<std::shared_ptr<TimelineSemaphore>> SemaphorePool::take(const Context& context) {
  constexpr std::size_t kPage_nbytes = 4096, kLine_nbytes = 64;
  const Driver& driver = context.driver();
  if (driver.cuStreamWaitValue32 == nullptr || driver.cuStreamWriteValue32 == nullptr)
    return std::shared_ptr<TimelineSemaphore>();
  const std::lock_guard lock(free_list_->mutex);
  if (free_list_->words.empty()) {
    PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
    const OwnCaptureMode own(driver);
    void* page = nullptr;
    PC_TRY(
        driver.check(driver.cuMemHostAlloc(&page, kPage_nbytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc"));
    std::memset(page, 0, kPage_nbytes);
    for (std::size_t at = kPage_nbytes; at != 0; at -= kLine_nbytes)
      free_list_->words.push_back(
          reinterpret_cast<uint32_t*>(static_cast<std::byte*>(page) + at - kLine_nbytes));
  }
  uint32_t* const at = free_list_->words.back();
  free_list_->words.pop_back();
  return std::shared_ptr<TimelineSemaphore>(new TimelineSemaphore(free_list_, context.shared_driver(), at));
}

}  // namespace pc::cuda
