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
class Turn {
 public:
  // `doing`: what one does in it, for errors.
  explicit Turn(std::string doing) : doing_(std::move(doing)) {}

  // Until it goes.
  class Held {
   public:
    Held(Held&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (turn_ != nullptr) turn_->let_go();
    }

   private:
    friend class Turn;
    explicit Held(Turn* turn) : turn_(turn) {}
    Turn* turn_;  // null: moved from
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
  std::deque<std::thread::id> line_;  // the first has the turn, if somebody has
  bool taken_ = false;
};

}  // namespace pc
