#include "engine/point_to_point.h"

#include <utility>

namespace pc {
namespace {

// Thread-safety: done() from anywhere, the rest by one thread at a time.
class Message final : public Work {
 public:
  Message(Transport& transport, Reactor& reactor, bool sends)
      : transport_(transport),
        reactor_(reactor),
        sends_(sends) {}
  ~Message() override {
    if (!done()) transport_.cancel(&queue_, Status(Code::kAborted, "nobody waits for it any more"));
  }
  CompletionSink* sink() { return &queue_; }

  // A completion that waits in the queue counts: nobody has to drive for done() to become true.
  bool done() const override { return ended_.load(std::memory_order_acquire) || !queue_.empty(); }

  Status wait(const WaitContext& context) override {
    if (ended_.load(std::memory_order_relaxed)) return result_;
    Completion completion;
    while (!queue_.take(completion)) {
      const WaitEnd end = reactor_.wait(queue_, context);
      if (end == WaitEnd::kReady) continue;
      const Status early = ended_early(end, where(), -1);
      transport_.cancel(&queue_, early);
      if (queue_.take(completion)) break;  // it made it after all
      return finish(early);
    }
    return finish(Status(completion.status.code(), completion.status.message()));
  }
  std::string where() const override { return sends_ ? "send" : "recv"; }

 private:
  Status finish(Status result) {
    result_ = std::move(result);
    ended_.store(true, std::memory_order_release);
    return result_;
  }

  Transport& transport_;
  Reactor& reactor_;
  const bool sends_;
  CompletionQueue queue_;
  Status result_;
  std::atomic<bool> ended_{false};
};

}  // namespace

std::unique_ptr<Work> post_send(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id,
                                ConstBuffer data) {
  auto message = std::make_unique<Message>(transport, reactor, true);
  transport.post_send(peer, SendOp{id, {data.data, data.nbytes()}, message->sink(), 0});
  return message;
}

std::unique_ptr<Work> post_recv(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id,
                                Buffer data) {
  auto message = std::make_unique<Message>(transport, reactor, false);
  transport.post_recv(peer,
                      RecvOp{id, {data.data, data.nbytes()}, data.nbytes(), nullptr, message->sink(), 0});
  return message;
}

}  // namespace pc
