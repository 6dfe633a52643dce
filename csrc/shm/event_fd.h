// The notifier of a rank that sleeps: an eventfd to which other processes may write. It records
// that it was notified, not how often.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace pc {

// Thread-safety: notify() and clear_notification() from any thread.
class EventFd {
 public:
  static Result<EventFd> create() {
    Fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd.valid()) return system_error("eventfd", errno);
    return EventFd(std::move(fd));
  }
  // Returns kMismatch if a descriptor from another rank is no eventfd, or if a write to it might
  // block.
  static Result<EventFd> adopt(Fd fd);

  // Never blocks: if the counter is full, a notification is already pending.
  void notify() noexcept { (void)!::write(fd_.get(), &kOnce, sizeof kOnce); }
  bool clear_notification() noexcept {
    uint64_t count = 0;
    return ::read(fd_.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count);
  }
  int fd() const { return fd_.get(); }
  void close_in_child() noexcept { fd_.reset(); }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}
  static constexpr uint64_t kOnce = 1;
  Fd fd_;
};

}  // namespace pc
