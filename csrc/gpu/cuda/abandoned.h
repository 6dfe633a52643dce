// What cannot be freed because a GPU, or another rank, may still use it although the call that it belongs to has failed. It lives
// as long as this object, which should be as long as the process.
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
