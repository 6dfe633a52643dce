#include "transport/tcp/connect.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/refusals.h"
#include "net/greeting.h"
#include "transport/tcp/sockets.h"
#include "wire/handshake_limiter.h"

namespace pc {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{10}, kLastRetry{500};
// After this time the next address of a peer with several addresses is tried.
constexpr std::chrono::milliseconds kAttempt{2000};
// pending connections beyond the number of expected connections
constexpr std::size_t kSpareConnections = 256;
constexpr int kAcceptsPerPoll = 32;

class Mesh {
 public:
  Mesh(const MeshIdentity& us, const Credentials& credentials, const std::vector<Fd>& listeners,
       const std::vector<std::string>& addresses, const Logger& log)
      : us_(us),
        credentials_(credentials),
        listeners_(listeners),
        addresses_(addresses),
        peers_(addresses.size() * per_rank()),
        limiter_(peers_.size() + kSpareConnections),
        refusals_(log) {
    for (Rank rank = 0; rank < us_.size; ++rank) {
      for (Peer& peer : of(rank)) {
        const std::size_t place = static_cast<std::size_t>(&peer - of(rank).data());
        peer.rank = rank;
        peer.role = place == 0 ? Role::kControl : Role::kData;
        peer.number = static_cast<uint8_t>(place == 0 ? 0 : place - 1);
      }
    }
    missing_ = peers_.empty() ? 0 : peers_.size() - per_rank();
  }
  Result<MeshSockets> run(const WaitContext& context, const std::atomic<bool>& give_up);

 private:
  struct Peer {  // one connection to a peer
    Rank rank = -1;
    Role role = Role::kData;
    uint8_t number = 0;  // index among the data connections
    ByteStream done;
    std::string happened;  // the most recent failure
    // Only for lower ranks, to which this rank connects:
    std::vector<SocketAddress> addresses;
    Fd connecting;                     // set until the kernel has connected
    std::optional<Greeting> greeting;  // set afterwards
    bool dialling() const { return connecting.valid() || greeting; }
    std::size_t attempts = 0;
    TimePoint retry_at = {}, attempt_ends = {};
    std::chrono::milliseconds backoff = kFirstRetry;
    const SocketAddress& address() const {  // the address of the current attempt
      return addresses[(attempts == 0 ? 0 : attempts - 1) % addresses.size()];
    }
  };

  Status read_addresses();
  void dial_due(TimePoint now);
  Status dial(Peer& peer);
  void wait(Deadline deadline, TimePoint now);
  void dial_ready(Peer& peer);
  Status begin_greeting(Peer& peer);
  void failed(Peer& peer, const std::string& why);
  void accept_some(int listener, TimePoint now);
  void reject(int pending, const std::string& why);
  void drop_expired(TimePoint now);
  void pending_ready(int pending);
  Decision judge(const Hello& theirs);
  void welcome(int pending);
  Hello hello_as(Role role, Rank peer, uint8_t number = 0) const {
    return Hello{
        .role = role, .number = number, .rank = us_.rank, .peer = peer, .size = us_.size, .epoch = us_.epoch};
  }
  // Returns the first missing connection to that rank, or null if none is missing.
  const Peer* missing_of(Rank rank) const;
  std::size_t missing_ranks() const;
  Status report_missing(double waited_s) const;
  std::size_t per_rank() const { return static_cast<std::size_t>(us_.sockets) + 1; }
  std::span<Peer> of(Rank rank) {  // the control connection first, then the data connections
    return std::span(peers_).subspan(static_cast<std::size_t>(rank) * per_rank(), per_rank());
  }
  Peer& at(const Hello& theirs) {
    return of(theirs.rank)[theirs.role == Role::kControl ? 0 : std::size_t{1} + theirs.number];
  }

  const MeshIdentity us_;
  const Credentials& credentials_;
  const std::vector<Fd>& listeners_;
  const std::vector<std::string>& addresses_;
  std::vector<Peer> peers_;  // every connection, by rank; the entries of this rank itself are not used
  std::map<int, Greeting> pending_;  // accepted connections during their handshake, by descriptor
  HandshakeLimiter limiter_;
  Refusals refusals_;
  // not OK once a peer that knows this job has rejected this rank; no peer will accept this rank
  // any more
  Status rejected_;
  std::string accept_failed_;       // the most recent reason why no connection could be accepted
  std::size_t missing_ = 0;         // number of missing connections
  TimePoint accept_again_at_ = {};  // set after the process ran out of descriptors
};

void tune(int fd, Role role) { role == Role::kControl ? expect_answers(fd) : tune_connection(fd); }

Result<MeshSockets> Mesh::run(const WaitContext& context, const std::atomic<bool>& give_up) {
  PC_TRY(read_addresses());
  const TimePoint began = now();
  while (missing_ > 0) {
    const TimePoint now = pc::now();
    const WaitEnd end = Waiter::check(context);
    if (end == WaitEnd::kTimeout) return report_missing(std::chrono::duration<double>(now - began).count());
    if (end == WaitEnd::kInterrupted) {
      return Status(Code::kInterrupted,
                    "connect: interrupted while " + std::to_string(missing_ranks()) + " peers were missing")
          .with_rank(us_.rank);
    }
    if (end == WaitEnd::kAborted || give_up.load(std::memory_order_acquire)) {
      return Status(Code::kAborted, "connect: given up by another thread").with_rank(us_.rank);
    }
    PC_TRY(rejected_);
    dial_due(now);
    drop_expired(now);
    wait(context.deadline, now);
  }
  MeshSockets sockets;
  for (Rank rank = 0; rank < us_.size; ++rank) {
    std::vector<ByteStream>& data = sockets.data.emplace_back();
    for (Peer& peer : of(rank)) {
      if (peer.role == Role::kControl) {
        sockets.control.push_back(std::move(peer.done));
      } else if (peer.done.valid()) {
        data.push_back(std::move(peer.done));
      }
    }
  }
  return sockets;
}

Status Mesh::read_addresses() {
  for (Rank rank = 0; rank < us_.rank; ++rank) {
    std::string_view all = addresses_[static_cast<std::size_t>(rank)];
    for (;;) {
      const std::size_t comma = all.find(',');
      const Result<SocketAddress> address = parse_endpoint(all.substr(0, comma));
      if (!address.is_ok()) {
        return Status(Code::kInvalidArgument, "connect: the address of rank " + std::to_string(rank) + ": " +
                                                  address.status().message())
            .with_rank(us_.rank)
            .with_peer(rank);
      }
      for (Peer& peer : of(rank)) peer.addresses.push_back(address.value());
      if (comma == std::string_view::npos) break;
      all.remove_prefix(comma + 1);
    }
  }
  return Status::ok();
}

void Mesh::dial_due(TimePoint now) {
  for (Peer& peer : peers_) {
    if (peer.rank >= us_.rank || peer.done.valid()) continue;
    const bool answered = peer.greeting && peer.greeting->handshake().has_theirs();
    if (peer.dialling() && !answered && peer.addresses.size() > 1 && now >= peer.attempt_ends)
      failed(peer, to_string(peer.address()) + " did not answer within 2 s");
    if (peer.dialling() || now < peer.retry_at) continue;
    ++peer.attempts;
    peer.attempt_ends = now + kAttempt;
    if (const Status dialled = dial(peer); !dialled.is_ok()) failed(peer, dialled.message());
  }
}

Status Mesh::dial(Peer& peer) {
  PC_ASSIGN_OR_RETURN(Fd fd, new_socket(peer.address()));
  use_large_buffers(fd.get());
  PC_TRY(start_connect(fd, peer.address()));
  peer.connecting = std::move(fd);
  return Status::ok();
}

void Mesh::failed(Peer& peer, const std::string& why) {
  peer.happened = why;
  peer.connecting.reset();
  peer.greeting.reset();
  peer.retry_at = now() + peer.backoff;
  if (peer.attempts % peer.addresses.size() == 0) peer.backoff = std::min(peer.backoff * 2, kLastRetry);
}

void Mesh::wait(Deadline deadline, TimePoint now) {
  std::vector<pollfd> polled;
  std::vector<Peer*> dials;
  for (Peer& peer : peers_) {
    if (!peer.dialling()) continue;
    if (peer.greeting) {
      polled.push_back({peer.greeting->fd(), POLLIN, 0});
    } else {
      polled.push_back({peer.connecting.get(), POLLOUT, 0});
    }
    dials.push_back(&peer);
  }
  for (const auto& [fd, greeting] : pending_) polled.push_back({fd, POLLIN, 0});
  const std::size_t first_listener = polled.size();
  if (now >= accept_again_at_) {
    for (const Fd& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
  }

  int ms = deadline.slice_ms();
  for (const Peer& peer : peers_) {  // a retry may be scheduled before the end of the slice
    if (peer.attempts > 0 && !peer.done.valid() && !peer.dialling()) {
      ms = std::min(ms, Deadline(peer.retry_at).slice_ms());
    }
  }
  if (::poll(polled.data(), polled.size(), ms) <= 0) return;

  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    if (i < dials.size()) {
      dial_ready(*dials[i]);
    } else if (i < first_listener) {
      pending_ready(polled[i].fd);
    } else {
      accept_some(polled[i].fd, now);
    }
  }
}

void Mesh::dial_ready(Peer& peer) {
  if (!peer.greeting) {
    if (const Status begun = begin_greeting(peer); !begun.is_ok()) failed(peer, begun.message());
    return;
  }
  const Handshake& handshake = peer.greeting->handshake();
  if (const Status status = peer.greeting->move(); !status.is_ok()) {
    if (handshake.rejected()) rejected_ = status.with_rank(us_.rank).with_peer(peer.rank);
    return failed(peer, status.message());
  }
  if (!handshake.done()) return;
  peer.done = peer.greeting->finish();
  peer.greeting.reset();
  --missing_;
}

Status Mesh::begin_greeting(Peer& peer) {
  if (const int error = connect_outcome(peer.connecting.get()); error != 0)
    return system_error("connect " + to_string(peer.address()), error);
  tune(peer.connecting.get(), peer.role);
  PC_ASSIGN_OR_RETURN(Handshake handshake,
                      Handshake::initiator(credentials_, hello_as(peer.role, peer.rank, peer.number)));
  peer.greeting.emplace(std::move(peer.connecting), std::move(handshake));
  return peer.greeting->write();
}

void Mesh::accept_some(int listener, TimePoint now) {
  // Accepts only some of the waiting connections, so that those already accepted can send their
  // handshakes before the limiter is full and evicts the oldest.
  for (int i = 0; i < kAcceptsPerPoll; ++i) {
    Result<Fd> fd = accept_one(listener);
    // Out of descriptors or memory: evict a pending connection, and pause the listener.
    if (!fd.is_ok()) {
      accept_failed_ = fd.status().message();
      pending_.erase(limiter_.evict());
      accept_again_at_ = now + std::chrono::milliseconds(Deadline::kSliceMs);
      return;
    }
    if (!fd.value().valid()) return;
    Result<Handshake> handshake = Handshake::acceptor(credentials_, hello_as(Role::kData, -1));
    if (!handshake.is_ok()) return;
    const int number = fd.value().get();
    pending_.erase(limiter_.enter(number, host_bytes(peer_address(number)), now));
    pending_.emplace(number, Greeting(std::move(fd).value(), std::move(handshake).value()));
  }
}

void Mesh::drop_expired(TimePoint now) {
  for (const int pending : limiter_.expired(now)) reject(pending, "it did not say hello within 3 s");
}

void Mesh::reject(int pending, const std::string& why) {
  refusals_.add(to_string(peer_address(pending)), why);
  limiter_.leave(pending);
  pending_.erase(pending);
}

void Mesh::pending_ready(int pending) {
  const auto found = pending_.find(pending);
  if (found == pending_.end()) return;  // evicted earlier in this call of wait()
  const Handshake& handshake = found->second.handshake();
  const Status status = found->second.move();
  if (!status.is_ok()) {
    // The peer has not proved its rank, but it uses this protocol. Its error may show why a rank is
    // missing.
    const Rank rank = handshake.has_theirs() ? handshake.theirs().rank : -1;
    if (rank > us_.rank && rank < us_.size) {
      for (Peer& peer : of(rank))
        peer.happened = "has not called us; a process that claims to be this rank did: " + status.message();
    }
    if (handshake.has_received()) return reject(pending, status.message());
    limiter_.leave(pending);  // the peer only probed whether the port is open
    pending_.erase(pending);
    return;
  }
  if (handshake.must_decide()) welcome(pending);
}

Decision Mesh::judge(const Hello& theirs) {
  if (theirs.rank <= us_.rank || theirs.number >= us_.sockets) return Decision::kNotNeeded;
  return at(theirs).done.valid() ? Decision::kRankTaken : Decision::kWelcome;
}

void Mesh::welcome(int pending) {
  Greeting& greeting = pending_.at(pending);
  const Hello theirs = greeting.handshake().theirs();
  const std::string peer_name = "rank " + std::to_string(theirs.rank);
  const Decision decision = judge(theirs);
  tune(pending, theirs.role);
  const Status said = greeting.decide(decision);
  if (decision == Decision::kRankTaken)
    return reject(pending, "a second process says that it is " + peer_name);
  if (decision == Decision::kNotNeeded) return reject(pending, peer_name + " has no reason to call us");
  if (!said.is_ok()) return reject(pending, said.message());
  at(theirs).done = greeting.finish();
  limiter_.leave(pending);
  pending_.erase(pending);
  --missing_;
}

const Mesh::Peer* Mesh::missing_of(Rank rank) const {
  const auto is_missing = [rank](const Peer& peer) { return peer.rank == rank && !peer.done.valid(); };
  const auto found = std::find_if(peers_.begin(), peers_.end(), is_missing);
  return rank == us_.rank || found == peers_.end() ? nullptr : &*found;
}

std::size_t Mesh::missing_ranks() const {
  std::size_t count = 0;
  for (Rank rank = 0; rank < us_.size; ++rank) count += missing_of(rank) != nullptr ? 1 : 0;
  return count;
}

Status Mesh::report_missing(double waited_s) const {
  std::string text = "connect: " + std::to_string(missing_ranks()) + " of " + std::to_string(us_.size - 1) +
                     " peers are missing:";
  Rank first = -1;
  for (Rank rank = 0; rank < us_.size; ++rank) {
    const Peer* const missing = missing_of(rank);
    if (missing == nullptr) continue;
    const Peer& peer = *missing;
    if (first >= 0) text += ";";
    if (first < 0) first = rank;
    text += " rank " + std::to_string(rank) + " (" + addresses_[static_cast<std::size_t>(rank)] + ") ";
    if (rank > us_.rank) {
      text += peer.happened.empty() ? "has not called us" : peer.happened;
    } else if (!peer.happened.empty()) {
      text += "does not answer after " + std::to_string(peer.attempts) + " attempts: " + peer.happened;
    } else {
      text += peer.greeting ? "accepts connections but does not say hello" : "does not answer";
    }
  }
  if (refusals_.count() > 0) {
    text +=
        ". Turned away " + std::to_string(refusals_.count()) + " connections, the last: " + refusals_.last();
  }
  if (!accept_failed_.empty()) text += ". At times no connection could be accepted: " + accept_failed_;
  text += ". Is every rank running, with the same addresses?";
  return Status(Code::kTimeout, text).with_rank(us_.rank).with_peer(first).with_elapsed(waited_s);
}

}  // namespace

Result<MeshSockets> connect_mesh(const MeshIdentity& us, const Credentials& credentials,
                                 const std::vector<Fd>& listeners, const std::vector<std::string>& addresses,
                                 const WaitContext& context, const std::atomic<bool>& give_up,
                                 const Logger& log) {
  return Mesh(us, credentials, listeners, addresses, log).run(context, give_up);
}

}  // namespace pc
