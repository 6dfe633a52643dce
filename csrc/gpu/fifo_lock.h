// What the threads of a rank do one after the other on the GPUs of a group: joining it, queueing its calls. They come in the order in
// which they asked. Each waits within its own deadline, hears Ctrl-C, and that the group has ended.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "comm/communicator.h"

namespace pc {

// Thread-safety: all methods.
class FifoLock {
 public:
  // `doing`: what a thread does while it holds the lock, for errors.
  explicit FifoLock(std::string doing) : doing_(std::move(doing)) {}

  // Until it goes.
  class Held {
   public:
    Held(Held&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (lock_ != nullptr) lock_->let_go();
    }

   private:
    friend class FifoLock;
    explicit Held(FifoLock* lock) : lock_(lock) {}
    FifoLock* lock_;  // null: moved from
  };
  // kInvalidArgument: this thread has it, or waits for it, and this is a signal handler that runs inside.
  Result<Held> take(Communicator& group, Deadline deadline);
  std::optional<Held> take_now();  // null: somebody has it, or waits for it
  bool is_mine() const;

 private:
  void let_go();
  const std::string doing_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::thread::id> waiting_;  // the first has the lock, if somebody has
  bool taken_ = false;
};

}  // namespace pc
