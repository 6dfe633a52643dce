// Wakes a rank that sleeps: an eventfd that another process may write. It remembers that it was rung, not how often.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace pc {

// Thread-safety: ring() and silence() from any thread.
class Bell {
 public:
  static Result<Bell> create() {
    Fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd.valid()) return system_error("eventfd", errno);
    return Bell(std::move(fd));
  }
  // kMismatch: a descriptor from outside that is no bell, or one that might block whoever rings.
  static Result<Bell> adopt(Fd fd);

  // Never blocks: where the counter is full, somebody has rung.
  void ring() noexcept { (void)!::write(fd_.get(), &kOnce, sizeof kOnce); }
  bool silence() noexcept {
    uint64_t count = 0;
    return ::read(fd_.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count);
  }
  int fd() const { return fd_.get(); }
  void close_in_child() noexcept { fd_.reset(); }

 private:
  explicit Bell(Fd fd) : fd_(std::move(fd)) {}
  static constexpr uint64_t kOnce = 1;
  Fd fd_;
};

}  // namespace pc
