#include "engine/plan/point_to_point.h"

#include <cstring>
#include <memory>
#include <utility>

namespace pc {
namespace {

// Thread-safety: any thread may call done() and notify(); the other methods only one thread at a
// time.
class Message final : public Work {
 public:
  Message(Transport& transport, Reactor& reactor, Rank peer, bool sends, MessageEnd* how)
      : transport_(transport),
        reactor_(reactor),
        peer_(peer),
        sends_(sends),
        how_(how) {}
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message() override {
    if (!ended_.load(std::memory_order_relaxed))
      transport_.cancel(&queue_, Status(Code::kAborted, "dropped by its owner before it was done"));
  }
  CompletionSink* sink() { return &queue_; }
  std::span<const std::byte> packed(const ConstIoVec& pieces) {
    packed_ = std::make_unique_for_overwrite<std::byte[]>(pieces.size());
    copy_pieces(pieces, {packed_.get()}, std::memcpy);
    return {packed_.get(), pieces.size()};
  }
  SegmentSink* copy_pieces_over(const IoVec& list) {
    scatter_.list = &list;
    return &scatter_;
  }

  // A queued completion counts as the end: perhaps no thread drives the operation and takes the
  // completion from the queue.
  bool done() const override { return ended_.load(std::memory_order_acquire) || !queue_.empty(); }

  WaitEnd drive(const WaitContext& context) override {
    return done() ? WaitEnd::kReady : reactor_.wait(queue_, context);
  }
  void progress() override {}  // the transport makes the progress
  void notify(CompletionSink* notifier, uint64_t token) override { queue_.notify(notifier, token); }

  Status wait(const WaitContext& context) override {
    if (ended_.load(std::memory_order_relaxed)) return result_;
    Completion completion;
    while (!queue_.take(completion)) {
      const WaitEnd end = reactor_.wait(queue_, context);
      if (end != WaitEnd::kReady) return withdraw(ended_early(end, where(), -1));
    }
    if (completion.token == kCancelled) return withdraw(completion.status);
    return finish(completion);
  }
  void cancel() override {
    queue_.complete(Completion{kCancelled, Status(Code::kAborted, "cancelled by its owner"), {}, 0});
  }
  Rank waits_for() const override { return peer_; }
  std::string where() const override { return sends_ ? "send" : "recv"; }

 private:
  static constexpr uint64_t kMessage = 0, kCancelled = 1;  // tokens

  Status withdraw(const Status& why) {
    const bool unannounced = transport_.cancel(&queue_, why);
    for (Completion completion; queue_.take(completion);) {
      // the message completed before it could be withdrawn
      if (completion.token == kMessage) return finish(completion);
    }
    if (how_ != nullptr) how_->unannounced = unannounced;
    return finish({.token = kMessage, .status = why, .found = {}, .nbytes = 0});
  }
  Status finish(const Completion& completion) {
    if (how_ != nullptr) {
      how_->found = completion.found;
      how_->found_nbytes = completion.nbytes;
    }
    result_ = Status(completion.status.code(), completion.status.message());
    ended_.store(true, std::memory_order_release);
    return result_;
  }

  struct Scatter final : SegmentSink {  // writes into several arrays
    void consume(uint64_t offset, std::span<const std::byte> data) override {
      copy_pieces(data, {nullptr, list}, offset, std::memcpy);
    }
    const IoVec* list = nullptr;
  };

  Transport& transport_;
  Reactor& reactor_;
  const Rank peer_;
  const bool sends_;
  MessageEnd* const how_;  // may be null
  CompletionQueue queue_;
  Scatter scatter_;
  std::unique_ptr<std::byte[]> packed_;  // a small list; freed after the transport has finished with it
  Status result_;
  std::atomic<bool> ended_{false};
};

}  // namespace

WorkPtr post_send(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id, ConstBuffer data,
                  std::string_view description, MessageEnd* how) {
  auto message = std::make_unique<Message>(transport, reactor, peer, true, how);
  const std::span<const char> text(description);
  // a list that is small enough for an eager send, which does not wait for its receiver
  const bool packs = data.list != nullptr && data.nbytes() <= kEagerBytes;
  const ConstIoVec given({const_cast<std::byte*>(data.data), data.list}, data.nbytes());
  const ConstIoVec payload = packs ? message->packed(given) : given;
  transport.post_send(peer, SendOp{id, payload, message->sink(), 0, std::as_bytes(text)});
  return WorkPtr(message.release());
}

WorkPtr post_recv(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id, Buffer data,
                  MessageEnd* how) {
  auto message = std::make_unique<Message>(transport, reactor, peer, false, how);
  RecvOp op{id, {data.data, data.nbytes()}, data.nbytes(), nullptr, message->sink(), 0};
  if (data.list != nullptr) {
    op.payload = {};
    op.consumer = message->copy_pieces_over(*data.list);
  }
  transport.post_recv(peer, op);
  return WorkPtr(message.release());
}

}  // namespace pc
