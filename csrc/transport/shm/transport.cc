#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_units.h"
#include "base/fd.h"
#include "transport/shm/connection.h"
#include "transport/shm/shm.h"

namespace pc {
namespace {

// If shared memory reaches every peer, the inner transport only reports the end of a peer. Such a
// report also ends a sleep, so it is enough to include the inner transport in one of this many
// polls.
constexpr unsigned kInnerSeldom = 64;
// Never sent: a receive of this message ends when its connection ends.
constexpr MessageId kNever{{~uint32_t{0}, StreamClass::kPointToPoint, ~uint32_t{0}}, 0, 0, 0};

std::size_t ring_nbytes_for(std::size_t ranks) {
  return ranks <= 4 ? 2048 * kKiB : ranks <= 8 ? 1024 * kKiB : ranks <= 32 ? 512 * kKiB : 256 * kKiB;
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(const ShmOptions& options, std::unique_ptr<Transport> inner, LocalPeers& local_peers,
               ShmWakeup& wakeup, Fd epoll)
      : options_(options),
        local_peers_(local_peers),
        wakeup_(wakeup),
        inner_(std::move(inner)),
        epoll_(std::move(epoll)),
        connections_(static_cast<std::size_t>(options.size)) {}
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;
  ~ShmTransport() override { abort(Status(Code::kAborted, "the transport is gone")); }

  std::string_view name() const override { return "shm"; }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  std::string_view path_to(Rank peer) const override {
    return find(peer) != nullptr ? "shared memory" : inner_->path_to(peer);
  }
  std::string address() const override { return inner_->address(); }
  Status connect(const std::vector<std::string>& addresses, const WaitContext& context) override;

  void post_send(Rank peer, const SendOp& op) override {
    ShmConnection* const connection = find(peer);
    if (connection == nullptr) return inner_->post_send(peer, op);
    const std::lock_guard lock(mutex_);
    if (!ended_.is_ok()) return complete(op.completions, op.token, ended_);
    // The peer's CLEAR may have arrived; then no REQUEST is needed.
    if (op.payload.size() > options_.limits.eager_bytes) connection->read();
    connection->link().post_send(op);
    connection->write();
    arm_for_sleepers();
  }
  void post_recv(Rank peer, const RecvOp& op) override {
    ShmConnection* const connection = find(peer);
    if (connection == nullptr) return inner_->post_recv(peer, op);
    const std::lock_guard lock(mutex_);
    if (!ended_.is_ok()) return complete(op.completions, op.token, ended_);
    connection->link().post_recv(op);
    arm_for_sleepers();
    connection->read();
    connection->write();
  }
  void post_probe(Rank peer, const ProbeOp& op) override {
    ShmConnection* const connection = find(peer);
    if (connection == nullptr) return inner_->post_probe(peer, op);
    const std::lock_guard lock(mutex_);
    if (!ended_.is_ok()) return complete(op.completions, op.token, ended_);
    connection->link().post_probe(op);
    arm_for_sleepers();
    connection->read();
  }
  bool send_at_once(Rank peer, const SendOp& op) override {
    ShmConnection* const connection = find(peer);
    if (connection == nullptr) return false;
    const std::lock_guard lock(mutex_);
    return connection->send_at_once(op);
  }
  bool recv_at_once(Rank peer, const RecvOp& op) override;
  bool cancel(const CompletionSink* sink, const Status& why) override;
  void discard(uint32_t group, uint64_t sequence) override;
  void close_group(uint32_t group, std::span<const Rank> members) override;
  std::vector<ByteStream> take_control_sockets() override { return inner_->take_control_sockets(); }

  std::size_t poll() override;
  int wait_fd() const override { return epoll_.get(); }
  bool fall_asleep() override;
  void wake_up() override;

  void shutdown(Deadline deadline) override;
  void abort(const Status& why) noexcept override;
  void close_in_child() noexcept override {
    epoll_.reset();
    inner_->close_in_child();
  }

 private:
  // Returns null if the inner transport serves this peer. connect() sets the connections, which do
  // not change after that.
  ShmConnection* find(Rank peer) const {
    return peer >= 0 && peer < options_.size ? connections_[static_cast<std::size_t>(peer)].get() : nullptr;
  }
  Status install();
  std::size_t poll_channels();  // mutex_ is held
  void arm_for_sleepers();      // mutex_ is held
  void end(const Status& why);  // mutex_ is held

  const ShmOptions options_;
  LocalPeers& local_peers_;
  ShmWakeup& wakeup_;
  // receives a completion when the inner transport's connection to a local peer ends; its token is
  // the rank
  CompletionQueue ends_;
  const std::unique_ptr<Transport> inner_;
  Fd epoll_;  // watches the inner transport and the wakeup
  bool reaches_all_ = false;
  std::atomic<unsigned> polls_{0};                           // polls since the inner transport was polled
  std::mutex mutex_;                                         // guards the members below, and all connections
  std::vector<std::unique_ptr<ShmConnection>> connections_;  // by rank; null: not a local peer
  std::vector<ShmConnection*> local_peers_in_order_;
  uint32_t sleepers_ = 0;  // threads between fall_asleep() and wake_up()
  bool armed_ = false;     // the wakeup is armed for the sleepers
  Status ended_;           // not OK after shutdown or abort
};

Status ShmTransport::connect(const std::vector<std::string>& addresses, const WaitContext& context) {
  PC_TRY(inner_->connect(addresses, context));
  const std::lock_guard lock(mutex_);
  PC_TRY(install());
  for (const ShmConnection* connection : local_peers_in_order_) {
    inner_->post_recv(connection->peer(), {.id = kNever,
                                           .payload = {},
                                           .nbytes = 0,
                                           .consumer = nullptr,
                                           .completions = &ends_,
                                           .token = static_cast<uint64_t>(connection->peer())});
  }
  return Status::ok();
}

Status ShmTransport::install() {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < options_.size; ++rank) {
    if (local_peers_.has(rank)) ranks.push_back(rank);
  }
  if (ranks.size() > kMaxChannels) return Status::ok();
  ShmConnection::Ends ends;
  ends.me = options_.rank;
  ends.my_place =
      static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), options_.rank) - ranks.begin());
  ends.ring_nbytes = ring_nbytes_for(ranks.size());
  ends.epoch = options_.epoch;
  ends.oversubscribed = options_.oversubscribed;
  ends.core = options_.core;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (place == ends.my_place) continue;
    ends.peer = ranks[place];
    ends.peer_place = place;
    PC_ASSIGN_OR_RETURN(const SegmentHeader* const header, wakeup_.header_of_rank(ends.peer));
    std::unique_ptr<ShmConnection>& connection = connections_[static_cast<std::size_t>(ends.peer)];
    connection = std::make_unique<ShmConnection>(local_peers_, wakeup_, *header, ends, options_.limits);
    local_peers_in_order_.push_back(connection.get());
  }
  reaches_all_ = ranks.size() == static_cast<std::size_t>(options_.size);
  return Status::ok();
}

bool ShmTransport::cancel(const CompletionSink* sink, const Status& why) {
  bool unannounced = inner_->cancel(sink, why);
  const std::lock_guard lock(mutex_);
  for (ShmConnection* connection : local_peers_in_order_) {
    unannounced = connection->link().cancel(sink, why) && unannounced;
    connection->write();
  }
  arm_for_sleepers();
  return unannounced;
}

void ShmTransport::discard(uint32_t group, uint64_t sequence) {
  inner_->discard(group, sequence);
  const std::lock_guard lock(mutex_);
  for (ShmConnection* connection : local_peers_in_order_) {
    connection->link().discard(group, sequence);
    connection->write();
  }
  arm_for_sleepers();
}

void ShmTransport::close_group(uint32_t group, std::span<const Rank> members) {
  inner_->close_group(group, members);
  const std::lock_guard lock(mutex_);
  for (const Rank member : members) {
    ShmConnection* const connection = find(member);
    if (connection == nullptr) continue;
    connection->link().close_group(group);
    connection->write();
  }
  arm_for_sleepers();
}

bool ShmTransport::recv_at_once(Rank peer, const RecvOp& op) {
  ShmConnection* const connection = find(peer);
  if (connection == nullptr || connection->waits_briefly().exchange(true, std::memory_order_acquire))
    return false;
  std::unique_lock lock(mutex_);
  ShmConnection::Next next = connection->next();
  if (next.slot != nullptr && !next.has_arrived()) {
    lock.unlock();
    const bool has_arrived = connection->waiter().briefly([&] { return next.has_arrived(); });
    lock.lock();
    if (!has_arrived) next.slot = nullptr;
  }
  const bool received = next.slot != nullptr && connection->recv_at_once(op);
  arm_for_sleepers();  // the credit may not have fitted into the channel
  connection->waits_briefly().store(false, std::memory_order_release);
  return received;
}

std::size_t ShmTransport::poll() {
  std::size_t moved = wakeup_.poll();
  if (!reaches_all_ || polls_.fetch_add(1, std::memory_order_relaxed) % kInnerSeldom == 0)
    moved += inner_->poll();
  const std::lock_guard lock(mutex_);
  return moved + poll_channels();
}

std::size_t ShmTransport::poll_channels() {
  std::size_t moved = 0;
  for (ShmConnection* connection : local_peers_in_order_) moved += connection->read() + connection->write();
  for (Completion end; ends_.take(end); ++moved)
    find(static_cast<Rank>(end.token))->end_as_peer_did(end.status);
  return moved;
}

bool ShmTransport::fall_asleep() {
  const bool idle = inner_->fall_asleep();
  const std::lock_guard lock(mutex_);
  ++sleepers_;
  arm_for_sleepers();
  // Checks the channels only after arming: either this rank sees what a peer has written, or the
  // peer sees that this rank sleeps.
  for (ShmConnection* connection : local_peers_in_order_) {
    if (connection->ended_by_peer())
      connection->end_as_peer_did(Status(
          Code::kPeerFailure,
          "rank " + std::to_string(connection->peer()) + " gave up the connection through shared memory"));
  }
  return poll_channels() == 0 && idle;
}

// Arms the wakeup only if an operation is posted or output is pending on these connections.
// Otherwise every message for which another thread spins would also wake a thread that waits for
// none of them, such as the progress thread.
void ShmTransport::arm_for_sleepers() {
  if (sleepers_ == 0 || armed_) return;
  armed_ =
      std::any_of(local_peers_in_order_.begin(), local_peers_in_order_.end(), [](ShmConnection* connection) {
        return connection->link().has_posted() || connection->link().has_output();
      });
  if (armed_) wakeup_.fall_asleep();
}

void ShmTransport::wake_up() {
  inner_->wake_up();
  const std::lock_guard lock(mutex_);
  if (sleepers_ > 0 && --sleepers_ == 0 && armed_) {
    wakeup_.wake_up();
    armed_ = false;
  }
  // the next poll includes the inner transport, which may have ended the sleep
  polls_.store(0, std::memory_order_relaxed);
}

void ShmTransport::shutdown(Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (ShmConnection* connection : local_peers_in_order_) connection->send_goodbye();
  for (;;) {
    lock.unlock();
    inner_->poll();
    lock.lock();
    poll_channels();
    const bool unsent = std::any_of(local_peers_in_order_.begin(), local_peers_in_order_.end(),
                                    [](const ShmConnection* connection) { return connection->unsent(); });
    if (!unsent || deadline.expired()) break;
    lock.unlock();
    pollfd readable{epoll_.get(), POLLIN, 0};
    if (fall_asleep()) ::poll(&readable, 1, deadline.slice_ms());
    wake_up();
    wakeup_.poll();
    lock.lock();
  }
  end(Status(Code::kAborted, "the transport was shut down").with_rank(options_.rank));
  lock.unlock();
  inner_->shutdown(deadline);
}

void ShmTransport::abort(const Status& why) noexcept {
  inner_->abort(why);
  const std::lock_guard lock(mutex_);
  end(why);
}

void ShmTransport::end(const Status& why) {
  if (!ended_.is_ok()) return;
  ended_ = why;
  for (ShmConnection* connection : local_peers_in_order_) connection->close(why);
  local_peers_in_order_.clear();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options,
                                                      std::unique_ptr<Transport> inner,
                                                      LocalPeers& local_peers, ShmWakeup& wakeup) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("epoll_create", errno);
  for (const int fd : {inner->wait_fd(), wakeup.wait_fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return system_error("epoll_ctl for the transport through shared memory", errno);
  }
  return std::unique_ptr<Transport>(
      std::make_unique<ShmTransport>(options, std::move(inner), local_peers, wakeup, std::move(epoll)));
}

}  // namespace pc
