// What cannot be freed because a GPU may still use it, or another rank, though the call that it belongs to has failed: kept by who made
// this, for as long as the process lives.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pc {

// Thread-safety: all methods.
class Abandoned {
 public:
  void add(std::shared_ptr<const void> what) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(what));
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const void>> all_;  // guarded by mutex_
};

}  // namespace pc
