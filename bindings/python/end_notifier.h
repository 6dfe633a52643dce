// Tells event loops that a call has ended.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace pc {

// Thread-safety: all methods, with the GIL or without.
class EndNotifier {
 public:
  // An eventfd that is written to when the call has ended. False: it has already, and nothing will be written. No more is
  // written once unwatch() has returned.
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
  std::mutex mutex_;  // guards what follows
  bool has_notified_ = false;
  std::vector<int> watching_;
};

}  // namespace pc
