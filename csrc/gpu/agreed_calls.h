// Which calls all ranks have made, as their comparisons end in whatever order: streams of a GPU go past a call when it and all
// calls before it are among them.
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
  // What streams wait for; null: they do not.
  explicit AgreedCalls(std::shared_ptr<cuda::TimelineSemaphore> semaphore)
      : semaphore_(std::move(semaphore)),
        first_(semaphore_ == nullptr ? 0 : semaphore_->value() + 1) {}

  // The number of a call that begins. Null: no stream waits for calls.
  std::optional<uint32_t> begin() {
    if (semaphore_ == nullptr) return std::nullopt;
    const std::lock_guard lock(mutex_);
    agreed_.push_back(false);
    return last();
  }
  // All ranks have made it, or it is not made after all.
  void agree(uint32_t number) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    agreed_[number - first_] = true;
    if (!agreed_.front()) return;
    for (; !agreed_.empty() && agreed_.front(); ++first_) agreed_.pop_front();
    semaphore_->signal(first_ - 1);
  }
  // Nothing is signalled from here on. The number of the last call that has begun.
  uint32_t stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    return last();
  }

 private:
  uint32_t last() const { return first_ + static_cast<uint32_t>(agreed_.size()) - 1; }

  const std::shared_ptr<cuda::TimelineSemaphore> semaphore_;
  std::mutex mutex_;         // guards what follows
  uint32_t first_;           // the first call that is not agreed
  std::deque<bool> agreed_;  // that call, and those that have begun since
  bool stopped_ = false;
};

}  // namespace pc
