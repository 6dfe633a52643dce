// Tracks which calls all ranks have made, while comparisons end in any order. A stream passes a
// call once all ranks have made that call and all calls before it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "gpu/cuda/timeline_semaphore.h"

namespace pc {

// Thread-safety: all methods.
class AgreedCalls {
 public:
  // `semaphore` is what streams wait for. If it is null, streams do not wait.
  explicit AgreedCalls(std::shared_ptr<cuda::TimelineSemaphore> semaphore)
      : semaphore_(std::move(semaphore)),
        first_(semaphore_ == nullptr ? 0 : semaphore_->value() + 1) {}

  // Returns the number of a call that begins, or none if no stream waits for calls.
  std::optional<uint32_t> begin() {
    if (semaphore_ == nullptr) return std::nullopt;
    const std::lock_guard lock(mutex_);
    agreed_.push_back(false);
    return last();
  }
  // Reports that all ranks have made the call, or that it is not made after all.
  void agree(uint32_t number) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    agreed_[number - first_] = true;
    if (!agreed_.front()) return;
    for (; !agreed_.empty() && agreed_.front(); ++first_) agreed_.pop_front();
    semaphore_->signal(first_ - 1);
  }
  // Stops all further signals. Returns the number of the last call that has begun.
  uint32_t stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    return last();
  }

 private:
  uint32_t last() const { return first_ + static_cast<uint32_t>(agreed_.size()) - 1; }

  const std::shared_ptr<cuda::TimelineSemaphore> semaphore_;
  std::mutex mutex_;         // guards the members below
  uint32_t first_;           // the first call that is not agreed
  std::deque<bool> agreed_;  // that call and all later ones
  bool stopped_ = false;
};

}  // namespace pc
