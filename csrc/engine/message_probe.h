// Waits, as Work, until one of several messages has arrived, and receives none of them.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// Thread-safety: any thread may call done(), notify(), cancel() and look_again(); the other methods
// only one thread at a time.
class MessageProbe final : public Work {
 public:
  MessageProbe(Transport& transport, Reactor& reactor) : transport_(transport), reactor_(reactor) {}
  ~MessageProbe() override { withdraw(); }
  MessageProbe(const MessageProbe&) = delete;
  MessageProbe& operator=(const MessageProbe&) = delete;

  // `peer` is a world rank; the digest of `id` is ignored. If `counts` is true, the wait goes on
  // for this message when no other message can arrive any more.
  void look_for(Rank peer, const MessageId& id, bool counts = true);
  // Call it if the set of messages to look for may have changed: wait() returns OK without a find.
  void look_again() { queue_.complete({.token = kLookAgain, .status = {}, .found = {}, .nbytes = 0}); }
  // completing this sink with kLookAgain has the same effect as look_again()
  CompletionSink* changes() { return &queue_; }
  static constexpr uint64_t kLookAgain = ~uint64_t{0};

  struct Find {
    std::size_t which = 0;  // index in the order of the look_for() calls
    MessageId id;
    uint64_t nbytes = 0;
    std::string description;
  };
  const Find* find() const { return found_ ? &find_ : nullptr; }  // valid after wait() has returned OK
  // After wait() has returned an error: the message that caused it; none after a deadline or an
  // interrupt.
  std::optional<std::size_t> failed() const { return failed_; }

  bool done() const override { return ended_ || !queue_.empty(); }
  WaitEnd drive(const WaitContext& context) override { return reactor_.wait(queue_, context); }
  void progress() override {}
  void notify(CompletionSink* notifier, uint64_t token) override { queue_.notify(notifier, token); }
  // Returns an error, that of the last message, if none can arrive any more.
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
  std::deque<Sought> sought_;  // a deque, since the elements must not move
  std::size_t counted_ = 0;    // how many of them are worth waiting for
  std::size_t over_ = 0;       // how many have ended with an error
  std::optional<std::size_t> failed_;
  bool found_ = false, ended_ = false;
  Find find_;
};

}  // namespace pc
