#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/fd.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/peer.h"
#include "transport/tcp/sockets.h"
#include "transport/tcp/tcp.h"

namespace pc {
namespace {

constexpr int kBacklog = 4096;           // the kernel clamps it to its somaxconn
constexpr std::size_t kAskAllPeers = 4;  // up to this many connections, reading each is cheaper than epoll

class TcpTransport final : public Transport {
 public:
  TcpTransport(const TcpOptions& options, std::vector<Fd> listeners, Fd epoll)
      : options_(options),
        listeners_(std::move(listeners)),
        epoll_(std::move(epoll)) {
    for (const Fd& listener : listeners_)
      address_ += (address_.empty() ? "" : ",") + to_string(local_address(listener.get()));
    peers_.resize(static_cast<std::size_t>(options.size));
  }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  ~TcpTransport() override { abort(Status(Code::kAborted, "the transport is gone")); }

  std::string_view name() const override { return "tcp"; }
  Capabilities capabilities() const override { return {}; }
  std::string address() const override { return address_; }
  Status connect(const std::vector<std::string>& addresses, const WaitContext& context) override;

  void post_send(Rank peer, const SendOp& op) override {
    const std::lock_guard lock(mutex_);
    Peer* const to = find(peer);
    to != nullptr ? to->post_send(op) : complete(op.completions, op.token, why_not(peer));
  }
  void post_recv(Rank peer, const RecvOp& op) override {
    const std::lock_guard lock(mutex_);
    Peer* const from = find(peer);
    from != nullptr ? from->post_recv(op) : complete(op.completions, op.token, why_not(peer));
  }
  void post_probe(Rank peer, const ProbeOp& op) override {
    const std::lock_guard lock(mutex_);
    Peer* const from = find(peer);
    from != nullptr ? from->post_probe(op) : complete(op.completions, op.token, why_not(peer));
  }
  bool cancel(const CompletionSink* sink, const Status& why) override;
  void discard(uint32_t group, uint64_t sequence) override;
  void close_group(uint32_t group, std::span<const Rank> members) override;
  std::vector<ByteStream> take_control_sockets() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(control_, {});
  }
  std::size_t poll() override {
    const std::lock_guard lock(mutex_);
    return poll_locked();
  }
  int wait_fd() const override { return epoll_.get(); }
  void shutdown(Deadline deadline) override;
  void abort(const Status& why) noexcept override;
  void close_in_child() noexcept override;

 private:
  Peer* find(Rank peer) const {
    const bool known = peer >= 0 && peer < options_.size;
    return known && ended_.is_ok() ? peers_[static_cast<std::size_t>(peer)].get() : nullptr;
  }
  Status why_not(Rank peer) const;
  Peer& peer_of(const Connection& connection) const {
    return *peers_[static_cast<std::size_t>(connection.peer())];
  }
  std::size_t poll_locked();
  Status install(MeshSockets sockets);
  void end(const Status& why);

  const TcpOptions options_;
  std::atomic<bool> give_up_{false};  // stops connect()
  std::string address_;

  std::mutex mutex_;                          // guards everything below, and all peers
  std::vector<Fd> listeners_;                 // until connect() takes them
  Fd epoll_;                                  // watches all connections; returned by wait_fd(). Never changes
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: this rank, and every rank before connect()
  std::vector<Connection*> open_;             // the connections that are not closed
  std::vector<ByteStream> control_;           // by rank; empty once they are taken
  Status ended_;                              // not OK after shutdown or abort
};

Status TcpTransport::connect(const std::vector<std::string>& addresses, const WaitContext& context) {
  if (addresses.size() != static_cast<std::size_t>(options_.size)) {
    return Status(Code::kInvalidArgument, "connect: " + std::to_string(addresses.size()) + " addresses for " +
                                              std::to_string(options_.size) + " ranks");
  }
  std::vector<Fd> listeners;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_.is_ok()) return ended_;
    if (listeners_.empty()) return Status(Code::kInvalidArgument, "connect: called twice");
    listeners = std::exchange(listeners_, {});
  }
  const MeshIdentity us{
      .rank = options_.rank, .size = options_.size, .epoch = options_.epoch, .sockets = options_.sockets};
  Result<MeshSockets> sockets =
      connect_mesh(us, options_.credentials, listeners, addresses, context, give_up_, options_.log);
  const std::lock_guard lock(mutex_);
  if (!ended_.is_ok()) return ended_;
  if (!sockets.is_ok()) return sockets.status();
  return install(std::move(sockets).value());
}

Status TcpTransport::install(MeshSockets sockets) {
  control_ = std::move(sockets.control);
  for (std::size_t i = 0; i < sockets.data.size(); ++i) {
    const Rank rank = static_cast<Rank>(i);
    if (rank == options_.rank) continue;
    auto peer = std::make_unique<Peer>(options_.limits.eager_bytes);
    for (ByteStream& socket : sockets.data[i]) {
      auto connection = std::make_unique<Connection>(std::move(socket), epoll_.get(), options_.rank, rank,
                                                     options_.epoch, options_.limits);
      PC_TRY(connection->watch());
      peer->add(std::move(connection));
    }
    for (const std::unique_ptr<Connection>& connection : peer->connections())
      open_.push_back(connection.get());
    peers_[i] = std::move(peer);
  }
  return Status::ok();
}

Status TcpTransport::why_not(Rank peer) const {
  if (!ended_.is_ok()) return ended_;
  const std::string peer_name = "rank " + std::to_string(peer);
  if (peer == options_.rank || peer < 0 || peer >= options_.size) {
    return Status(Code::kInvalidArgument,
                  peer_name + " is not a peer of rank " + std::to_string(options_.rank));
  }
  return Status(Code::kNotInitialized, "not connected to " + peer_name).with_peer(peer);
}

std::size_t TcpTransport::poll_locked() {
  std::size_t moved = 0;
  if (open_.size() <= kAskAllPeers) {
    for (Connection* connection : open_) moved += peer_of(*connection).serve(*connection);
  } else {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      Connection& connection = *static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
      moved += peer_of(connection).serve(connection);
    }
  }
  // Only a poll that moved something can have found the end of a connection.
  if (moved > 0) std::erase_if(open_, [](const Connection* connection) { return !connection->open(); });
  return moved;
}

bool TcpTransport::cancel(const CompletionSink* sink, const Status& why) {
  const std::lock_guard lock(mutex_);
  bool unannounced = true;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer != nullptr) unannounced = peer->cancel(sink, why) && unannounced;
  }
  return unannounced;
}

void TcpTransport::discard(uint32_t group, uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer != nullptr) peer->discard(group, sequence);
  }
}

void TcpTransport::close_group(uint32_t group, std::span<const Rank> members) {
  const std::lock_guard lock(mutex_);
  for (const Rank member : members) {
    const std::unique_ptr<Peer>& peer = peers_[static_cast<std::size_t>(member)];
    if (peer != nullptr) peer->close_group(group);
  }
}

void TcpTransport::shutdown(Deadline deadline) {
  give_up_.store(true, std::memory_order_release);
  std::unique_lock lock(mutex_);
  for (Connection* connection : open_) connection->link().send_goodbye();
  for (;;) {
    poll_locked();
    bool unsent = false;
    for (Connection* connection : open_) {
      peer_of(*connection).write(*connection);
      unsent = unsent || connection->unsent();
    }
    if (!unsent || deadline.expired()) break;
    pollfd readable{epoll_.get(), POLLIN, 0};
    lock.unlock();
    ::poll(&readable, 1, deadline.slice_ms());
    lock.lock();
  }
  for (Connection* connection : open_) connection->finish_writing();
  // closing with bytes unread would reset the connection, and the peer would not receive the
  // goodbye
  poll_locked();
  end(Status(Code::kAborted, "the transport was shut down").with_rank(options_.rank));
}

void TcpTransport::abort(const Status& why) noexcept {
  give_up_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  end(why);
}

void TcpTransport::end(const Status& why) {
  if (!ended_.is_ok()) return;
  ended_ = why;
  listeners_.clear();
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer != nullptr) peer->close(why);
  }
  open_.clear();
}

void TcpTransport::close_in_child() noexcept {
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer != nullptr) peer->close_in_child();
  }
  for (ByteStream& socket : control_) socket.reset();
  listeners_.clear();
  epoll_.reset();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(options.rank) + " of " +
                                              std::to_string(options.size) + " does not exist");
  }
  if (options.sockets < 1 || options.sockets > kMostSockets) {
    return Status(Code::kInvalidArgument, std::to_string(options.sockets) + " sockets to each rank: 1 to " +
                                              std::to_string(kMostSockets) + " are possible");
  }
  if (options.bind_ips.empty()) return Status(Code::kInvalidArgument, "no address to listen on was given");
  std::vector<Fd> listeners;
  for (const std::string& ip : options.bind_ips) {
    PC_ASSIGN_OR_RETURN(const SocketAddress address, parse_ip(ip, 0));
    PC_ASSIGN_OR_RETURN(Fd listener, new_socket(address));
    use_large_buffers(listener.get());
    PC_TRY(listen_on(listener, address, kBacklog));
    listeners.push_back(std::move(listener));
  }
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("epoll_create", errno);
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(options, std::move(listeners), std::move(epoll)));
}

}  // namespace pc
