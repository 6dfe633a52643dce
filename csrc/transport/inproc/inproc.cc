#include "transport/inproc/inproc.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/byte_units.h"
#include "base/fd.h"
#include "transport/deliver.h"

namespace pc {
namespace {

constexpr std::size_t kMoveBytes = kMiB;  // the limit of one call of Hub::move(); poll() moves the rest

// Both ends of the channel between two ranks. Thread-safety: `mutex` guards the members below it.
struct Pair {
  Pair(Rank low, Rank high, const LinkLimits& limits)
      : links{Link(low, high, 0, limits), Link(high, low, 0, limits)} {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
    control[0].reset(ends[0]);
    control[1].reset(ends[1]);
  }
  std::mutex mutex;
  std::array<Link, 2> links;  // of the lower rank, of the higher rank
  std::array<Fd, 2> control;  // of the lower rank, of the higher rank, until they are taken
  bool ended = false;         // one rank has shut down or aborted: nothing moves any more
};

// Signals that a rank's poll() has something to do. notify() is called while the lock of the pair
// is held, and poll() calls answer() before it takes that lock. A poll() that has answered a
// notification therefore sees the frames that caused it, even if answer() also cleared the
// notification of another thread.
struct WakeEvent {
  Fd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> notified{false};  // if false, poll() needs no system call
  void notify() {
    ::eventfd_write(event.get(), 1);
    notified.store(true);
  }
  bool answer() {
    if (!notified.load(std::memory_order_relaxed) || !notified.exchange(false)) return false;
    eventfd_t ignored = 0;
    ::eventfd_read(event.get(), &ignored);
    return true;
  }
};

class Hub final : public InprocHub, public std::enable_shared_from_this<Hub> {
 public:
  Hub(Rank size, const LinkLimits& limits)
      : size_(size),
        notifiers_(static_cast<std::size_t>(size)),
        taken_(notifiers_.size()),
        joined_(notifiers_.size()) {
    for (Rank high = 1; high < size; ++high) {
      for (Rank low = 0; low < high; ++low) pairs_.push_back(std::make_unique<Pair>(low, high, limits));
    }
  }
  std::unique_ptr<Transport> make_transport(Rank rank) override;

  Rank size() const { return size_; }
  WakeEvent& notifier(Rank rank) { return notifiers_[static_cast<std::size_t>(rank)]; }
  Pair& pair(Rank a, Rank b) {
    const std::size_t high = static_cast<std::size_t>(std::max(a, b));
    return *pairs_[high * (high - 1) / 2 + static_cast<std::size_t>(std::min(a, b))];
  }
  Status join(Rank rank, const WaitContext& context);
  // Moves frames both ways; the caller holds the pair's lock. Notifies both ranks if frames are
  // left.
  std::size_t move(Pair& pair, Rank a, Rank b);

 private:
  const Rank size_;
  std::vector<WakeEvent> notifiers_;
  std::vector<std::unique_ptr<Pair>> pairs_;  // (low, high) at high*(high-1)/2 + low
  std::mutex mutex_;                          // guards taken_ and joined_
  std::condition_variable rank_joined_;
  std::vector<bool> taken_, joined_;
};

Status Hub::join(Rank rank, const WaitContext& context) {
  std::unique_lock lock(mutex_);
  joined_[static_cast<std::size_t>(rank)] = true;
  rank_joined_.notify_all();
  const auto all_here = [&] { return std::find(joined_.begin(), joined_.end(), false) == joined_.end(); };
  const auto slice = [&] { return std::chrono::milliseconds(context.deadline.slice_ms()); };
  while (!rank_joined_.wait_for(lock, slice(), all_here)) {
    lock.unlock();  // because the probe runs the user's code
    const WaitEnd end = Waiter::check(context);
    lock.lock();
    if (end == WaitEnd::kTimeout) break;
    if (end == WaitEnd::kReady) continue;
    return Status(end == WaitEnd::kInterrupted ? Code::kInterrupted : Code::kAborted,
                  "ended while waiting for the other ranks of this process")
        .with_rank(rank);
  }
  if (all_here()) return Status::ok();
  std::string missing;
  for (Rank peer = 0; peer < size_; ++peer) {
    if (!joined_[static_cast<std::size_t>(peer)])
      missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
  }
  return Status(Code::kTimeout, "connect: these ranks did not join their in-process world: " + missing)
      .with_rank(rank);
}

std::size_t Hub::move(Pair& pair, Rank a, Rank b) {
  std::size_t frames = 0, nbytes = 0;
  for (bool moved = true; moved && !pair.ended;) {
    moved = false;
    for (const std::size_t from : {0U, 1U}) {
      const std::optional<OutFrame> frame = pair.links[from].next_frame();
      if (!frame) continue;
      const Status status = deliver(*frame, pair.links[1 - from]);
      if (!status.is_ok()) {
        for (Link& link : pair.links) link.fail(status);
        pair.ended = true;
        break;
      }
      nbytes += frame->payload.size() + kHeaderBytes;
      pair.links[from].written();
      ++frames;
      moved = true;
    }
    if (nbytes < kMoveBytes) continue;
    if (pair.links[0].has_output() || pair.links[1].has_output()) {
      notifier(a).notify();
      notifier(b).notify();
    }
    break;
  }
  return frames;
}

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<Hub> hub, Rank rank) : hub_(std::move(hub)), rank_(rank) {}
  InprocTransport(const InprocTransport&) = delete;
  InprocTransport& operator=(const InprocTransport&) = delete;
  ~InprocTransport() override {
    // Without shutdown() the peers see this as the failure of this rank.
    leave(Status(Code::kAborted, "the transport is gone"),
          Status(Code::kPeerFailure, "rank " + std::to_string(rank_) + " closed without goodbye")
              .with_peer(rank_));
  }

  std::string_view name() const override { return "inproc"; }
  Capabilities capabilities() const override { return {.zero_copy = false, .same_host_only = true}; }
  std::string address() const override { return "inproc:" + std::to_string(rank_); }
  Status connect(const std::vector<std::string>& addresses, const WaitContext& context) override {
    if (addresses.size() != static_cast<std::size_t>(hub_->size())) {
      return Status(Code::kInvalidArgument, "connect: " + std::to_string(addresses.size()) +
                                                " addresses for " + std::to_string(hub_->size()) + " ranks");
    }
    bool has_sockets = wait_fd() >= 0;
    for_each_pair([&](Pair& pair, Rank peer) { has_sockets = has_sockets && control(pair, peer).valid(); });
    if (!has_sockets) return Status(Code::kSystem, "no eventfd or socketpair for an in-process rank");
    return hub_->join(rank_, context);
  }

  void post_send(Rank peer, const SendOp& op) override {
    post(peer, op, [&](Link& link) { link.post_send(op); });
  }
  void post_recv(Rank peer, const RecvOp& op) override {
    post(peer, op, [&](Link& link) { link.post_recv(op); });
  }
  void post_probe(Rank peer, const ProbeOp& op) override {
    post(peer, op, [&](Link& link) { link.post_probe(op); });
  }
  bool cancel(const CompletionSink* sink, const Status& why) override {
    bool unannounced = true;
    for_each_pair([&](Pair& pair, Rank peer) {
      unannounced = mine(pair, peer).cancel(sink, why) && unannounced;
      hub_->move(pair, rank_, peer);
    });
    return unannounced;
  }
  void discard(uint32_t group, uint64_t sequence) override {
    for_each_pair([&](Pair& pair, Rank peer) {
      mine(pair, peer).discard(group, sequence);
      hub_->move(pair, rank_, peer);
    });
  }
  void close_group(uint32_t group, std::span<const Rank> members) override {
    for_each_pair([&](Pair& pair, Rank peer) {
      if (std::find(members.begin(), members.end(), peer) == members.end()) return;
      mine(pair, peer).close_group(group);
      hub_->move(pair, rank_, peer);
    });
  }
  std::vector<ByteStream> take_control_sockets() override {
    std::vector<ByteStream> sockets(static_cast<std::size_t>(hub_->size()));
    for_each_pair([&](Pair& pair, Rank peer) {
      sockets[static_cast<std::size_t>(peer)] = ByteStream(std::move(control(pair, peer)));
    });
    return sockets;
  }

  std::size_t poll() override {
    if (!hub_->notifier(rank_).answer()) return 0;
    std::size_t moved = 0;
    for_each_pair([&](Pair& pair, Rank peer) { moved += hub_->move(pair, rank_, peer); });
    return moved;
  }
  int wait_fd() const override { return hub_->notifier(rank_).event.get(); }

  void shutdown(Deadline deadline) override {
    for_each_pair([&](Pair& pair, Rank peer) { mine(pair, peer).send_goodbye(); });
    for (;;) {
      std::size_t unsent = 0;
      for_each_pair([&](Pair& pair, Rank peer) {
        hub_->move(pair, rank_, peer);
        if (pair.ended) return;
        const Link& link = mine(pair, peer);
        unsent += link.counts().posted_sends + (link.has_output() ? 1 : 0);
      });
      if (unsent == 0 || deadline.expired()) break;
      // pauses, because nothing notifies this rank when a peer's receive moves the rest in the
      // peer's thread
      ::poll(nullptr, 0, deadline.slice_ms(1));
    }
    leave(Status(Code::kAborted, "the transport was shut down"),
          Status(Code::kPeerExited, "rank " + std::to_string(rank_) + " shut down").with_peer(rank_));
  }
  void abort(const Status& why) noexcept override {
    leave(why, Status(Code::kPeerFailure, "rank " + std::to_string(rank_) + " closed without goodbye")
                   .with_peer(rank_));
  }
  void close_in_child() noexcept override {
    for (Rank peer = 0; peer < hub_->size(); ++peer) {
      if (peer != rank_) control(hub_->pair(rank_, peer), peer).reset();
    }
    hub_->notifier(rank_).event.reset();
  }

 private:
  Fd& control(Pair& pair, Rank peer) const { return pair.control[rank_ < peer ? 0 : 1]; }
  Link& mine(Pair& pair, Rank peer) const { return pair.links[rank_ < peer ? 0 : 1]; }
  Link& theirs(Pair& pair, Rank peer) const { return pair.links[rank_ < peer ? 1 : 0]; }

  template <class Visit>
  void for_each_pair(Visit&& visit) {
    for (Rank peer = 0; peer < hub_->size(); ++peer) {
      if (peer == rank_) continue;
      Pair& pair = hub_->pair(rank_, peer);
      const std::lock_guard lock(pair.mutex);
      visit(pair, peer);
    }
  }
  template <class Op, class Post>
  void post(Rank peer, const Op& op, Post&& post_on) {
    if (peer < 0 || peer >= hub_->size() || peer == rank_) {
      const Status why(Code::kInvalidArgument,
                       "rank " + std::to_string(peer) + " is not a peer of rank " + std::to_string(rank_));
      return complete(op.completions, op.token, why.with_peer(peer));
    }
    Pair& pair = hub_->pair(rank_, peer);
    const std::lock_guard lock(pair.mutex);
    post_on(mine(pair, peer));
    hub_->move(pair, rank_, peer);
  }
  void end(Pair& pair, Rank peer, const Status& for_us, const Status& for_them) {
    mine(pair, peer).fail(for_us);
    if (!pair.ended) theirs(pair, peer).fail(for_them);
    pair.ended = true;
  }
  void leave(const Status& for_us, const Status& for_them) {
    for_each_pair([&](Pair& pair, Rank peer) {
      control(pair, peer).reset();
      end(pair, peer, for_us, for_them);
    });
  }

  const std::shared_ptr<Hub> hub_;
  const Rank rank_;
};

std::unique_ptr<Transport> Hub::make_transport(Rank rank) {
  const std::lock_guard lock(mutex_);
  if (rank < 0 || rank >= size_ || taken_[static_cast<std::size_t>(rank)]) return nullptr;
  taken_[static_cast<std::size_t>(rank)] = true;
  return std::make_unique<InprocTransport>(shared_from_this(), rank);
}

}  // namespace

std::shared_ptr<InprocHub> InprocHub::create(Rank size, const LinkLimits& limits) {
  return std::make_shared<Hub>(size, limits);
}

}  // namespace pc
