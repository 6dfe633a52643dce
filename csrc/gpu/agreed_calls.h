// Tracks which calls all ranks have made. The comparisons of calls may end in any order, but a
// stream passes a call only once all ranks have made that call and all calls before it.
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
  // Streams wait for values of `semaphore`. If it is null, streams do not wait.
  explicit AgreedCalls(std::shared_ptr<cuda::TimelineSemaphore> semaphore)
      : semaphore_(std::move(semaphore)),
        first_(semaphore_ == nullptr ? 0 : semaphore_->value() + 1) {}

  // Assigns a number to a call that begins, and returns it. Returns none if streams do not wait.
  std::optional<uint32_t> begin() {
    if (semaphore_ == nullptr) return std::nullopt;
    const std::lock_guard lock(mutex_);
    agreed_.push_back(false);
    return last();
  }
  // Records that all ranks have made the call, or that it will not be made.
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
  uint32_t first_;           // the first call that not every rank is known to have made
  std::deque<bool> agreed_;  // for call first_ and each later call: whether all ranks have made it
  bool stopped_ = false;
};

}  // namespace pc
