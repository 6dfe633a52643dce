// Notifies event loops of the end of a call.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace pc {

// Thread-safety: all methods, with the GIL or without.
class EndNotifier {
 public:
  // Registers an eventfd that is written when the call has ended. Returns false if the call has
  // already ended; then nothing is written. Nothing is written after unwatch() has returned.
  bool watch(int fd) {
    const std::lock_guard lock(mutex_);
    if (has_notified_) return false;
    if (std::find(watching_.begin(), watching_.end(), fd) == watching_.end()) watching_.push_back(fd);
    return true;
  }
  void unwatch(int fd) {
    const std::lock_guard lock(mutex_);
    std::erase(watching_, fd);
  }
  void notify() {
    const std::lock_guard lock(mutex_);
    has_notified_ = true;
    for (const int fd : watching_) ::eventfd_write(fd, 1);
    watching_.clear();
  }

 private:
  std::mutex mutex_;  // guards the members below
  bool has_notified_ = false;
  std::vector<int> watching_;
};

}  // namespace pc
