// Which calls all ranks have made, as their comparisons end in whatever order: streams of a GPU go past a call when it and all
// calls before it are among them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda/timeline_semaphore.h"

namespace pc {

// Thread-safety: all methods.
class AgreedCalls {
 public:
  // What streams wait for; null: they do not.
  explicit AgreedCalls(std::shared_ptr<cuda::TimelineSemaphore> semaphore)
      : semaphore_(std::move(semaphore)),
        first_(semaphore_ == nullptr ? 0 : semaphore_->value() + 1) {}

  // The number of a call that begins.
  uint32_t begin() {
    const std::lock_guard lock(mutex_);
    agreed_.push_back(false);
    return first_ + static_cast<uint32_t>(agreed_.size()) - 1;
  }
  // All ranks have made it, or nobody waits for it.
  void agree(uint32_t number) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    agreed_[number - first_] = true;
    if (!agreed_.front()) return;
    for (; !agreed_.empty() && agreed_.front(); ++first_) agreed_.pop_front();
    if (semaphore_ != nullptr) semaphore_->signal(first_ - 1);
  }
  // Nothing is signalled from here on.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }

 private:
  const std::shared_ptr<cuda::TimelineSemaphore> semaphore_;
  std::mutex mutex_;         // guards what follows
  uint32_t first_;           // the first call that is not agreed
  std::deque<bool> agreed_;  // that call, and those that have begun since
  bool stopped_ = false;
};

}  // namespace pc
