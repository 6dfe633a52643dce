// What the threads of a rank do one after the other on the GPUs of a group: joining it, queueing its calls. They come in the order in
// which they asked. Each waits within its own deadline, hears Ctrl-C, and that the group has ended.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "comm/communicator.h"

namespace pc {

// Thread-safety: all methods.
class Turn {
 public:
  // `doing`: what one does in it, for errors.
  explicit Turn(std::string doing) : doing_(std::move(doing)) {}

  // Held until the answer is let go. kInvalidArgument: this thread has it, or waits for it, and this is a signal handler that runs
  // inside.
  Result<std::shared_ptr<void>> take(Communicator& group, Deadline deadline);
  std::shared_ptr<void> take_now();  // null: somebody has it, or waits for it
  bool is_mine() const;

 private:
  std::shared_ptr<void> held();  // what is given for a turn that has been taken
  const std::string doing_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::thread::id> line_;  // the first has the turn, if somebody has
  bool taken_ = false;
};

}  // namespace pc
