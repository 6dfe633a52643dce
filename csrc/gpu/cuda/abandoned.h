// Keeps objects that cannot be freed because a GPU, or another rank, may still use them although
// the call that they belong to has failed. They live as long as the Abandoned object, which should
// live as long as the process.
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
