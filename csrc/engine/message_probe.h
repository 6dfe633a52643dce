// A Work that waits until one of several messages has arrived. It receives none of them.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// Thread-safety: any thread may call done(), notify(), cancel() and look_again(); only one thread
// at a time may call the other methods.
class MessageProbe final : public Work {
 public:
  MessageProbe(Transport& transport, Reactor& reactor) : transport_(transport), reactor_(reactor) {}
  ~MessageProbe() override { withdraw(); }
  MessageProbe(const MessageProbe&) = delete;
  MessageProbe& operator=(const MessageProbe&) = delete;

  // `peer` is a world rank; the digest of `id` is ignored. Messages added with `counts` keep
  // the wait going; see wait().
  void look_for(Rank peer, const MessageId& id, bool counts = true);
  // Call this if the set of messages to look for may have changed. wait() then returns OK, and
  // find() returns null.
  void look_again() { queue_.complete({.token = kLookAgain, .status = {}, .found = {}, .nbytes = 0}); }
  // Completing this sink with kLookAgain has the same effect as look_again().
  CompletionSink* changes() { return &queue_; }
  static constexpr uint64_t kLookAgain = ~uint64_t{0};

  struct Find {
    std::size_t which = 0;  // index in the order of the look_for() calls
    MessageId id;
    uint64_t nbytes = 0;
    std::string description;
  };
  // valid after wait() has returned OK; null after look_again()
  const Find* find() const { return found_ ? &find_ : nullptr; }
  // After wait() has returned an error: the index of the message that caused it, as in Find::which.
  // nullopt if a deadline, an interrupt or cancel() caused it.
  std::optional<std::size_t> failed() const { return failed_; }

  bool done() const override { return ended_ || !queue_.empty(); }
  WaitEnd drive(const WaitContext& context) override { return reactor_.wait(queue_, context); }
  void progress() override {}
  void notify(CompletionSink* notifier, uint64_t token) override { queue_.notify(notifier, token); }
  // Returns an error if a message fails with kPeerFailure, or if no message that counts can arrive
  // any more. The error is that of the message that failed last.
  Status wait(const WaitContext& context) override;
  void cancel() override { queue_.complete({.token = kCancelled, .status = {}, .found = {}, .nbytes = 0}); }
  Rank waits_for() const override { return sought_.size() == 1 ? sought_.front().peer : -1; }
  std::string where() const override { return "recv"; }

 private:
  static constexpr uint64_t kCancelled = kLookAgain - 1;
  struct Sought {
    Rank peer;
    std::string description;  // sent with the message; written by the transport
  };
  void withdraw();

  Transport& transport_;
  Reactor& reactor_;
  CompletionQueue queue_;
  std::deque<Sought> sought_;  // a deque, since the elements must not move
  std::size_t counted_ = 0;    // number of messages that were added with `counts`
  std::size_t over_ = 0;       // number of messages that have failed
  std::optional<std::size_t> failed_;
  bool found_ = false, ended_ = false;
  Find find_;
};

}  // namespace pc
