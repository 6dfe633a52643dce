#include "transport/loopback.h"

#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "transport/deliver.h"
#include "wire/link.h"

namespace pc {
namespace {

// Two ends of one link: this rank sends at one end and receives at the other. The thread that posts
// moves the frames, so nothing is left to poll.
class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(Rank rank, Transport* others) : rank_(rank), others_(others) {}

  std::string_view name() const override { return others_ == nullptr ? "loopback" : others_->name(); }
  std::string_view path_to(Rank peer) const override {
    return is_own(peer) ? "loopback" : others_->path_to(peer);
  }
  Capabilities capabilities() const override { return {.zero_copy = false, .same_host_only = true}; }
  std::string address() const override { return {}; }
  Status connect(const std::vector<std::string>&, const WaitContext&) override { return Status::ok(); }

  void post_send(Rank peer, const SendOp& op) override {
    if (!is_own(peer)) return others_->post_send(peer, op);
    at_both_ends([&] { sends_.post_send(op); });
  }
  void post_recv(Rank peer, const RecvOp& op) override {
    if (!is_own(peer)) return others_->post_recv(peer, op);
    at_both_ends([&] { receives_.post_recv(op); });
  }
  void post_probe(Rank peer, const ProbeOp& op) override {
    if (!is_own(peer)) return others_->post_probe(peer, op);
    at_both_ends([&] { receives_.post_probe(op); });
  }
  bool send_at_once(Rank peer, const SendOp& op) override {
    return !is_own(peer) && others_->send_at_once(peer, op);
  }
  bool recv_at_once(Rank peer, const RecvOp& op) override {
    return !is_own(peer) && others_->recv_at_once(peer, op);
  }
  bool cancel(const CompletionSink* sink, const Status& why) override {
    bool unannounced = true;
    at_both_ends([&] {
      for (Link* end : ends()) unannounced = end->cancel(sink, why) && unannounced;
    });
    return (others_ == nullptr || others_->cancel(sink, why)) && unannounced;
  }
  void discard(uint32_t group, uint64_t sequence) override {
    if (others_ != nullptr) others_->discard(group, sequence);
  }
  void close_group(uint32_t group, std::span<const Rank> members) override {
    at_both_ends([&] {
      for (Link* end : ends()) end->close_group(group);
    });
    if (others_ != nullptr) others_->close_group(group, members);
  }
  std::vector<ByteStream> take_control_sockets() override { return {}; }
  std::size_t poll() override { return others_ == nullptr ? 0 : others_->poll(); }
  int wait_fd() const override { return -1; }
  void shutdown(Deadline) override { abort(Status(Code::kAborted, "the transport was shut down")); }
  void abort(const Status& why) noexcept override {
    const std::lock_guard lock(mutex_);
    for (Link* end : ends()) end->fail(why);
  }
  void close_in_child() noexcept override {}

 private:
  bool is_own(Rank peer) const { return peer == rank_; }
  std::array<Link*, 2> ends() { return {&sends_, &receives_}; }

  template <class Do>
  void at_both_ends(Do&& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    while (move_one()) {
    }
  }
  // Moves one frame each time it takes the lock, so that other threads can post while a large
  // message moves.
  bool move_one() {
    const std::lock_guard lock(mutex_);
    return move(sends_, receives_) || move(receives_, sends_);
  }
  // Returns true if a frame has moved.
  bool move(Link& from, Link& to) {
    const std::optional<OutFrame> frame = from.next_frame();
    if (!frame) return false;
    const Status status = deliver(*frame, to);
    if (status.is_ok()) {
      from.written();
    } else {
      for (Link* end : ends()) end->fail(status);
    }
    return status.is_ok();
  }

  const Rank rank_;
  Transport* const others_;  // may be null
  std::mutex mutex_;         // guards the members below
  Link sends_{rank_, rank_, 0}, receives_{rank_, rank_, 0};
};

}  // namespace

std::unique_ptr<Transport> make_loopback_transport(Rank rank, Transport* others) {
  return std::make_unique<LoopbackTransport>(rank, others);
}

}  // namespace pc
