// What the threads of a rank do one after the other on the GPUs of a group: joining it, queueing its calls. Each waits for the others
// within its own deadline, hears Ctrl-C, and that the group has ended.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "comm/communicator.h"

namespace pc {

// Thread-safety: all methods; what take() gives is let go by the thread that took it.
class Turn {
 public:
  // `doing`: what one does in it, for errors.
  explicit Turn(std::string doing) : doing_(std::move(doing)) {}

  // Held until the answer is let go. kInvalidArgument: this thread has it, and this is a signal handler that runs inside.
  Result<std::shared_ptr<void>> take(Communicator& group, Deadline deadline);
  std::shared_ptr<void> take_now();  // null: another thread has it, or this one
  bool is_mine() const { return holder_ == std::this_thread::get_id(); }

 private:
  std::shared_ptr<void> held();  // mutex_ held
  const std::string doing_;
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_;
};

}  // namespace pc
