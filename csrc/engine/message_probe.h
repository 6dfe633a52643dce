// Waits until one of several messages is here, as Work, and takes none.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// Thread-safety: done(), notify(), cancel() and look_again() from anywhere, the rest by one thread at a time.
class MessageProbe final : public Work {
 public:
  MessageProbe(Transport& transport, Reactor& reactor) : transport_(transport), reactor_(reactor) {}
  ~MessageProbe() override { withdraw(); }
  MessageProbe(const MessageProbe&) = delete;
  MessageProbe& operator=(const MessageProbe&) = delete;

  // A world rank; the digest does not matter. `counts`: the wait goes on for it when no other message can come any more.
  void look_for(Rank peer, const MessageId& id, bool counts = true);
  // The messages to look for may have changed: wait() ends without an error, and without a find.
  void look_again() { queue_.complete({.token = kLookAgain, .status = {}, .found = {}, .nbytes = 0}); }
  CompletionSink* changes() { return &queue_; }  // whatever is completed here with kLookAgain does the same
  static constexpr uint64_t kLookAgain = ~uint64_t{0};

  struct Find {
    std::size_t which = 0;  // counted as look_for() was called
    MessageId id;
    uint64_t nbytes = 0;
    std::string description;
  };
  const Find* find() const { return found_ ? &find_ : nullptr; }  // after a wait() that was OK
  // After one that was not: the message because of which it ended; none after a deadline or an interrupt.
  std::optional<std::size_t> failed() const { return failed_; }

  bool done() const override { return ended_ || !queue_.empty(); }
  WaitEnd drive(const WaitContext& context) override { return reactor_.wait(queue_, context); }
  void progress() override {}
  void notify(CompletionSink* notifier, uint64_t token) override { queue_.notify(notifier, token); }
  // Not OK: none can come any more; it is the last one's status.
  Status wait(const WaitContext& context) override;
  void cancel() override { queue_.complete({.token = kCancelled, .status = {}, .found = {}, .nbytes = 0}); }
  Rank waits_for() const override { return sought_.size() == 1 ? sought_.front().peer : -1; }
  std::string where() const override { return "recv"; }

 private:
  static constexpr uint64_t kCancelled = kLookAgain - 1;
  struct Sought {
    Rank peer;
    std::string description;  // written by the transport
  };
  void withdraw();

  Transport& transport_;
  Reactor& reactor_;
  CompletionQueue queue_;
  std::deque<Sought> sought_;  // they stay where they are
  std::size_t counted_ = 0;    // so many of them are worth waiting for
  std::size_t over_ = 0;       // so many have ended with an error
  std::optional<std::size_t> failed_;
  bool found_ = false, ended_ = false;
  Find find_;
};

}  // namespace pc
