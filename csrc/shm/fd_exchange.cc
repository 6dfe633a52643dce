#include "shm/fd_exchange.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "net/socket.h"
#include "shm/descriptor_message.h"
#include "shm/fd_exchange_messages.h"
#include "wire/credentials.h"

namespace pc {
namespace {

// The pause before a retry if the listener's queue is full or too many descriptors are in flight.
constexpr int kOversubscribedMs = 5;
constexpr int kAttempts = 3;  // a slow leader may drop this rank's connection without reading the message
constexpr std::size_t kSparePending = 64;  // connections beyond those of the expected ranks
// how long a send may wait for the number of descriptors in flight to drop
constexpr double kOverloadedS = 10;

// The address of a socket without a file: the name begins with a zero byte.
struct AbstractAddress {
  explicit AbstractAddress(const FdEndpoint& endpoint) {
    static constexpr std::string_view kPrefix = "pycollective/";
    unix.sun_family = AF_UNIX;
    std::memcpy(unix.sun_path + 1, kPrefix.data(), kPrefix.size());
    std::memcpy(unix.sun_path + 1 + kPrefix.size(), endpoint.name.data(), endpoint.name.size());
    length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kPrefix.size() + endpoint.name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&unix); }
  sockaddr_un unix = {};
  socklen_t length = 0;
};

// Checks that the process at the other end runs as the same user; the kernel reports that user.
Status check_user(int socket) {
  ucred credentials = {};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return system_error("SO_PEERCRED", errno);
  if (credentials.uid == ::geteuid()) return Status::ok();
  return Status(Code::kMismatch, "it runs as user " + std::to_string(credentials.uid) + " and this one as " +
                                     std::to_string(::geteuid()));
}

Status look_at(const WaitContext& context, const std::string& doing) {
  switch (Waiter::check(context)) {
    case WaitEnd::kReady: return Status::ok();
    case WaitEnd::kTimeout: return Status(Code::kTimeout, "timed out while " + doing);
    case WaitEnd::kInterrupted: return Status(Code::kInterrupted, "interrupted while " + doing);
    case WaitEnd::kAborted: break;
  }
  return Status(Code::kAborted, "ended by another thread while " + doing);
}

bool ended_by_context(const Status& status) {
  return status.code() == Code::kTimeout || status.code() == Code::kInterrupted ||
         status.code() == Code::kAborted;
}

void pause(const WaitContext& context, int ms) { ::poll(nullptr, 0, context.deadline.slice_ms(ms)); }

void await(int fd, short events, const WaitContext& context) {
  pollfd polled = {fd, events, 0};
  ::poll(&polled, 1, context.deadline.slice_ms());
}

Status send_waiting(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                    const WaitContext& context, const std::string& doing) {
  const Deadline overloaded = Deadline::after(kOverloadedS);
  for (;;) {
    PC_ASSIGN_OR_RETURN(const bool sent, send_message(socket, bytes, descriptors));
    if (sent) return Status::ok();
    PC_TRY(look_at(context, doing));
    if (overloaded.expired()) {
      return Status(Code::kSystem,
                    "for " + std::to_string(static_cast<int>(kOverloadedS)) +
                        " s there was no room for descriptors on their way: raise the limit of "
                        "open files (ulimit -n)");
    }
    pause(context, kOversubscribedMs);
  }
}

Result<DescriptorMessage> receive_waiting(int socket, std::span<std::byte> into, std::size_t most_descriptors,
                                          const WaitContext& context, const std::string& doing) {
  for (;;) {
    PC_ASSIGN_OR_RETURN(std::optional<DescriptorMessage> message,
                        receive_message(socket, into, most_descriptors));
    if (message) return std::move(*message);
    PC_TRY(look_at(context, doing));
    await(socket, POLLIN, context);
  }
}

// Returns a connection to the leader, after check_user(). Waits while the leader's queue is full.
Result<Fd> connect_to(const FdEndpoint& leader, const WaitContext& context) {
  const AbstractAddress address(leader);
  for (;;) {
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return system_error("socket for the ranks of this host", errno);
    if (::connect(socket.get(), address.get(), address.length) == 0) {
      const Status user = check_user(socket.get());
      if (user.is_ok()) return socket;
      return Status(user.code(), "the leader's socket is not its own: " + user.message());
    }
    if (errno == ECONNREFUSED) {
      return Status(
          Code::kSystem,
          "it cannot reach the others' socket (ECONNREFUSED): it is in another network namespace or "
          "container");
    }
    if (errno != EAGAIN && errno != EINTR) return system_error("connecting to the ranks of this host", errno);
    PC_TRY(look_at(context, "connecting to the ranks of this host"));
    pause(context, kOversubscribedMs);
  }
}

}  // namespace

Result<FdExchangeListener> FdExchangeListener::open() {
  FdEndpoint endpoint;
  PC_TRY(fill_randomly(endpoint.name));
  PC_TRY(fill_randomly(endpoint.token));
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return system_error("socket for the ranks of this host", errno);
  const AbstractAddress address(endpoint);
  if (::bind(listener.get(), address.get(), address.length) != 0 || ::listen(listener.get(), SOMAXCONN) != 0)
    return system_error("listening for the ranks of this host", errno);
  return FdExchangeListener(std::move(listener), endpoint);
}

FdExchangeServer::FdExchangeServer(const FdExchangeListener& listener, uint32_t epoch,
                                   std::set<Rank> expected)
    : listener_(listener),
      epoch_(epoch),
      expected_(std::move(expected)),
      limiter_(expected_.size() + kSparePending) {}

std::string FdExchangeServer::refusal_of(Rank rank) const {
  const auto found = refused_.find(rank);
  return found == refused_.end() ? "" : found->second;
}

Status FdExchangeServer::serve(int ms) {
  std::vector<pollfd> polled = {{listener_.fd(), POLLIN, 0}};
  for (const auto& [fd, socket] : pending_) polled.push_back({fd, POLLIN, 0});
  if (::poll(polled.data(), polled.size(), ms) < 0 && errno != EINTR)
    return system_error("poll for the ranks of this host", errno);
  for (const pollfd& each : std::span(polled).subspan(1)) {
    if (each.revents != 0) read_join(each.fd);
  }
  const TimePoint now = pc::now();
  for (const int late : limiter_.expired(now)) {  // connections whose message has arrived were read above
    limiter_.leave(late);
    pending_.erase(late);
  }
  if (polled.front().revents != 0) accept_all(now);
  return Status::ok();
}

void FdExchangeServer::accept_all(TimePoint now) {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce; ++i) {
    Result<Fd> accepted = accept_one(listener_.fd());
    // The process is out of descriptors: drops a pending connection or, if there is none, gives
    // other threads time to close descriptors.
    if (!accepted.is_ok()) {
      const int gone = limiter_.evict();
      pending_.erase(gone);
      if (gone < 0) ::poll(nullptr, 0, kOversubscribedMs);
      return;
    }
    if (!accepted.value().valid()) return;
    Fd socket = std::move(accepted).value();
    if (!check_user(socket.get()).is_ok()) continue;
    const int fd = socket.get();
    pending_.emplace(fd, std::move(socket));
    if (const int gone = limiter_.enter(fd, {}, now); gone >= 0) pending_.erase(gone);
    read_join(fd);
  }
}

void FdExchangeServer::read_join(int pending) {
  const auto found = pending_.find(pending);
  if (found == pending_.end()) return;
  JoinBytes bytes;
  Result<std::optional<DescriptorMessage>> message = receive_message(pending, bytes, 2);
  if (message.is_ok() && !message.value()) return;
  limiter_.leave(pending);
  Fd socket = std::move(found->second);
  pending_.erase(found);
  if (!message.is_ok()) return;
  const Result<JoinMessage> word = decode_join(bytes);
  if (!word.is_ok() || !same_secret(word.value().token, listener_.endpoint().token)) return;
  const Rank rank = word.value().rank;
  if (word.value().epoch != epoch_ || !expected_.contains(rank) || clients_.contains(rank)) return;
  admit(rank, std::move(socket), std::move(message.value()->descriptors));
}

void FdExchangeServer::admit(Rank rank, Fd socket, std::vector<Fd> descriptors) {
  if (descriptors.size() != 2) {
    refused_[rank] = "it brought " + std::to_string(descriptors.size()) + " descriptors and not 2";
    return;
  }
  Result<PeerPart> part = PeerPart::adopt(rank, std::move(descriptors[0]), std::move(descriptors[1]));
  if (!part.is_ok()) {
    refused_[rank] = part.status().message();
    return;
  }
  refused_.erase(rank);
  clients_.emplace(rank, Client{std::move(socket), std::move(part).value()});
}

Result<std::map<Rank, std::string>> FdExchangeServer::distribute(Rank self, const SharedPart& own,
                                                                 const WaitContext& context) {
  // Serves one client after the other, so that few descriptors are in flight at a time: the kernel
  // limits descriptors in flight like open descriptors.
  std::map<Rank, std::string> failed;
  for (const auto& [rank, client] : clients_) {
    const Status given = send_all(client, self, own, context);
    if (given.is_ok()) continue;
    if (ended_by_context(given)) return given.with_peer(rank);
    failed[rank] = given.message();
  }
  for (const auto& [rank, why] : failed) clients_.erase(rank);
  return failed;
}

Status FdExchangeServer::send_all(const Client& client, Rank self, const SharedPart& own,
                                  const WaitContext& context) {
  const std::string doing = "handing rank " + std::to_string(client.part.rank) + " the others' memory";
  std::vector<Rank> ranks = {self};
  std::vector<int> descriptors = {own.memory.fd(), own.notifier.fd()};
  const uint32_t total = static_cast<uint32_t>(clients_.size());  // the leader, and all clients but this one
  const auto send_them = [&] {
    const PartsBytes bytes = encode(PartsMessage{total, std::exchange(ranks, {})});
    return send_waiting(client.socket.get(), bytes, std::exchange(descriptors, {}), context, doing);
  };
  for (const auto& [rank, other] : clients_) {
    if (rank == client.part.rank) continue;
    if (ranks.size() == kRanksAtOnce) PC_TRY(send_them());
    ranks.push_back(rank);
    descriptors.push_back(other.part.memory.fd());
    descriptors.push_back(other.part.notifier.fd());
  }
  PC_TRY(send_them());
  AnswerBytes bytes;
  PC_TRY(receive_waiting(client.socket.get(), bytes, 0, context, doing).status());
  PC_ASSIGN_OR_RETURN(const std::string why_not, decode_answer(bytes));
  return why_not.empty() ? Status::ok() : Status(Code::kPeerFailure, why_not);
}

std::vector<PeerPart> FdExchangeServer::take_peers() {
  std::vector<PeerPart> peers;
  for (auto& [rank, client] : clients_) peers.push_back(std::move(client.part));
  clients_.clear();
  pending_.clear();
  return peers;
}

Result<FdExchangeClient> FdExchangeClient::begin(const FdEndpoint& leader, Rank self, uint32_t epoch,
                                                 const SharedPart& own, const WaitContext& context) {
  const JoinBytes bytes = encode(JoinMessage{epoch, self, leader.token});
  const std::array<int, 2> descriptors = {own.memory.fd(), own.notifier.fd()};
  for (int attempt = 1;; ++attempt) {
    PC_ASSIGN_OR_RETURN(Fd socket, connect_to(leader, context));
    const Status joined =
        send_waiting(socket.get(), bytes, descriptors, context, "joining the ranks of this host");
    if (joined.is_ok()) return FdExchangeClient(std::move(socket));
    if (joined.code() != Code::kPeerFailure || attempt == kAttempts) return joined;
  }
}

Result<std::vector<PeerPart>> FdExchangeClient::receive(const std::set<Rank>& expected,
                                                        const WaitContext& context) {
  Result<std::vector<PeerPart>> all = receive_all(expected, context);
  if (!all.is_ok() && (ended_by_context(all.status()) || all.status().code() == Code::kPeerFailure))
    return all;
  PC_TRY(send_waiting(socket_.get(), encode_answer(all.status().message()), {}, context,
                      "answering the ranks of this host"));
  return all;
}

Result<std::vector<PeerPart>> FdExchangeClient::receive_all(const std::set<Rank>& expected,
                                                            const WaitContext& context) {
  std::vector<PeerPart> peers;
  std::set<Rank> missing = expected;
  for (;;) {
    PartsBytes bytes;
    PC_ASSIGN_OR_RETURN(DescriptorMessage message,
                        receive_waiting(socket_.get(), bytes, 2 * kRanksAtOnce, context,
                                        "waiting for the memory of the ranks of this host"));
    PC_ASSIGN_OR_RETURN(const PartsMessage word, decode_parts(bytes));
    if (message.descriptors.size() != 2 * word.ranks.size() || word.ranks.empty())
      return Status(Code::kMismatch, "a message has not two descriptors for each rank");
    for (std::size_t i = 0; i < word.ranks.size(); ++i) {
      if (missing.erase(word.ranks[i]) == 0)
        return Status(Code::kMismatch, "the memory of a rank came that was not expected");
      PC_ASSIGN_OR_RETURN(PeerPart part, PeerPart::adopt(word.ranks[i], std::move(message.descriptors[2 * i]),
                                                         std::move(message.descriptors[2 * i + 1])));
      peers.push_back(std::move(part));
    }
    if (peers.size() >= word.total) return peers;
  }
}

}  // namespace pc
