// A lock for those operations of one rank on a group's GPUs that must not overlap: joining the
// group, or queueing its calls. Threads acquire it in the order of their requests. A thread stops
// waiting at its deadline, on Ctrl-C, or when the group ends.
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
  // `doing` describes, for errors, what a thread does while it holds the lock.
  explicit FifoLock(std::string doing) : doing_(std::move(doing)) {}

  // Holds the lock during its lifetime.
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
  // Returns kInvalidArgument in a signal handler that runs while this thread holds the lock or
  // waits for it.
  Result<Held> take(Communicator& group, Deadline deadline);
  std::optional<Held> take_now();  // returns null if a thread holds the lock or waits for it
  bool is_mine() const;

 private:
  void let_go();
  const std::string doing_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  // in order of their requests; while the lock is held, the first thread is the holder
  std::deque<std::thread::id> waiting_;
  bool taken_ = false;
};

}  // namespace pc
