#include "transport/tcp/connect.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "transport/tcp/sockets.h"

namespace pc {
namespace {

using std::chrono::milliseconds;

constexpr int kSliceMs = 50;  // how often give_up and the context are looked at
constexpr milliseconds kFirstRetry{10}, kLastRetry{500};
constexpr milliseconds kStrangerPatience{3000};  // a rank says hello at once
constexpr std::size_t kSpareStrangers = 64;      // beyond one per connection that there shall be
constexpr Role kRoles[] = {Role::kData, Role::kControl};

// A connection that has yet to prove who it is: 64 bytes, and nothing else is kept for it.
struct Greeting {
  Fd fd;
  HelloBytes theirs = {};
  std::size_t got = 0;
  // True: all bytes are here. False: more must come. An error: this connection is of no use.
  Result<bool> read() {
    const ssize_t count = ::recv(fd.get(), theirs.data() + got, theirs.size() - got, 0);
    if (count == 0) return Status(Code::kPeerFailure, "closed the connection before its hello was complete");
    if (count < 0) {
      if (errno == EAGAIN || errno == EINTR) return false;
      return system_error("receiving the hello", errno);
    }
    got += static_cast<std::size_t>(count);
    return got == theirs.size();
  }
};

class Mesh {
 public:
  Mesh(const Hello& ours, int listener, const std::vector<std::string>& addresses, const Logger& log)
      : ours_(ours),
        listener_(listener),
        addresses_(addresses),
        log_(log),
        peers_(addresses.size() * std::size(kRoles)) {
    for (Rank rank = 0; rank < ours_.size; ++rank) {
      for (const Role role : kRoles) {
        at(rank, role).rank = rank;
        at(rank, role).role = role;
      }
    }
    missing_ = peers_.empty() ? 0 : peers_.size() - std::size(kRoles);
  }
  Result<MeshSockets> run(const WaitContext& context, const std::atomic<bool>& give_up);

 private:
  struct Peer {  // in one role
    Rank rank = -1;
    Role role = Role::kData;
    Fd done;
    std::string happened;  // the last thing that went wrong with it
    // Only for lower ranks, which we call:
    SocketAddress address;
    Greeting greeting;
    bool connected = false;  // false while the kernel still connects
    int attempts = 0;
    TimePoint retry_at = {};
    milliseconds backoff = kFirstRetry;
  };
  struct Stranger {
    Greeting greeting;
    TimePoint patience_ends;
  };

  Status read_addresses();
  void dial_due(TimePoint now);
  void wait(Deadline deadline, TimePoint now);
  void dial_ready(Peer& peer);
  void failed(Peer& peer, const std::string& why);
  void accept_all(TimePoint now);
  void turned_away(const std::string& whom_and_why);
  void drop_impatient(TimePoint now);
  // True: this stranger is dealt with, one way or the other.
  bool stranger_ready(Stranger& stranger);
  std::optional<std::string> welcome(Stranger& stranger);  // why not
  Status say_hello(int fd, Role role) const;
  Hello hello_as(Role role) const {
    Hello hello = ours_;
    hello.role = role;
    return hello;
  }
  // The first of its connections that is missing; null: all are there.
  const Peer* missing_of(Rank rank) const;
  std::size_t missing_ranks() const;
  Status say_who_is_missing(double waited_s) const;
  Peer& at(Rank rank, Role role) {
    return peers_[static_cast<std::size_t>(rank) * std::size(kRoles) + (role == Role::kControl ? 1 : 0)];
  }

  const Hello ours_;
  const int listener_;
  const std::vector<std::string>& addresses_;
  const Logger log_;
  std::vector<Peer> peers_;  // by rank and role, our own among them
  std::vector<Stranger> strangers_;
  std::string refused_;  // the last stranger that was turned away, and why
  std::size_t refusals_ = 0;
  std::string accept_failed_;       // why nobody could be accepted, the last time that was so
  std::size_t missing_ = 0;         // connections
  TimePoint accept_again_at_ = {};  // after the process ran out of descriptors
};

void tune(int fd, Role role) { role == Role::kControl ? tune_control_connection(fd) : tune_connection(fd); }

Result<MeshSockets> Mesh::run(const WaitContext& context, const std::atomic<bool>& give_up) {
  PC_TRY(read_addresses());
  const TimePoint began = std::chrono::steady_clock::now();
  while (missing_ > 0) {
    const TimePoint now = std::chrono::steady_clock::now();
    const WaitEnd end = Waiter::check(context);
    if (end == WaitEnd::kTimeout)
      return say_who_is_missing(std::chrono::duration<double>(now - began).count());
    if (end == WaitEnd::kInterrupted) {
      return Status(Code::kInterrupted,
                    "connect: interrupted while " + std::to_string(missing_ranks()) + " peers were missing")
          .with_rank(ours_.rank);
    }
    if (end == WaitEnd::kAborted || give_up.load(std::memory_order_acquire)) {
      return Status(Code::kAborted, "connect: given up by another thread").with_rank(ours_.rank);
    }
    dial_due(now);
    drop_impatient(now);
    wait(context.deadline, now);
  }
  MeshSockets sockets;
  for (Peer& peer : peers_) {
    (peer.role == Role::kControl ? sockets.control : sockets.data).push_back(std::move(peer.done));
  }
  return sockets;
}

Status Mesh::read_addresses() {
  for (Rank rank = 0; rank < ours_.rank; ++rank) {
    Result<SocketAddress> address = parse_endpoint(addresses_[static_cast<std::size_t>(rank)]);
    if (!address.is_ok()) {
      return Status(Code::kInvalidArgument, "connect: the address of rank " + std::to_string(rank) + ": " +
                                                address.status().message())
          .with_rank(ours_.rank)
          .with_peer(rank);
    }
    for (const Role role : kRoles) at(rank, role).address = address.value();
  }
  return Status::ok();
}

void Mesh::dial_due(TimePoint now) {
  for (Peer& peer : peers_) {
    if (peer.rank >= ours_.rank || peer.done.valid() || peer.greeting.fd.valid() || now < peer.retry_at)
      continue;
    ++peer.attempts;
    peer.connected = false;
    Result<Fd> fd = start_connect(peer.address);
    if (fd.is_ok()) {
      peer.greeting.fd = std::move(fd).value();
    } else {
      failed(peer, fd.status().message());
    }
  }
}

void Mesh::failed(Peer& peer, const std::string& why) {
  peer.happened = why;
  peer.greeting = {};
  peer.retry_at = std::chrono::steady_clock::now() + peer.backoff;
  peer.backoff = std::min(peer.backoff * 2, kLastRetry);
}

void Mesh::wait(Deadline deadline, TimePoint now) {
  std::vector<pollfd> polled;
  std::vector<Peer*> dials;
  for (Peer& peer : peers_) {
    if (!peer.greeting.fd.valid()) continue;
    const short wanted = peer.connected ? POLLIN : POLLOUT;
    polled.push_back({peer.greeting.fd.get(), wanted, 0});
    dials.push_back(&peer);
  }
  for (const Stranger& stranger : strangers_) polled.push_back({stranger.greeting.fd.get(), POLLIN, 0});
  const bool accepting = now >= accept_again_at_;
  if (accepting) polled.push_back({listener_, POLLIN, 0});

  int ms = deadline.slice_ms(kSliceMs);
  for (const Peer& peer : peers_) {  // a dial that is due earlier
    if (peer.attempts > 0 && !peer.done.valid() && !peer.greeting.fd.valid()) {
      ms = std::min(ms, Deadline(peer.retry_at).slice_ms(kSliceMs));
    }
  }
  if (::poll(polled.data(), polled.size(), ms) <= 0) return;

  std::size_t next = 0;
  for (Peer* const peer : dials) {
    if (polled[next++].revents != 0) dial_ready(*peer);
  }
  for (Stranger& stranger : strangers_) {
    if (polled[next++].revents != 0 && stranger_ready(stranger)) stranger.greeting.fd.reset();
  }
  std::erase_if(strangers_, [](const Stranger& s) { return !s.greeting.fd.valid(); });
  if (accepting && polled[next].revents != 0) accept_all(now);
}

Status Mesh::say_hello(int fd, Role role) const {
  HelloBytes bytes;
  encode(hello_as(role), bytes);
  // A new connection's buffer always has room for 64 bytes; if not, the connection is useless.
  const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count == static_cast<ssize_t>(bytes.size())) return Status::ok();
  return system_error("sending the hello", count < 0 ? errno : ENOBUFS);
}

void Mesh::dial_ready(Peer& peer) {
  if (!peer.connected) {
    if (const int error = connect_outcome(peer.greeting.fd.get()); error != 0) {
      return failed(peer, system_error("connect " + to_string(peer.address), error).message());
    }
    peer.connected = true;
    tune(peer.greeting.fd.get(), peer.role);
    if (const Status said = say_hello(peer.greeting.fd.get(), peer.role); !said.is_ok())
      failed(peer, said.message());
    return;
  }
  const Result<bool> complete = peer.greeting.read();
  if (!complete.is_ok()) {
    return failed(peer, complete.status().message() +
                            "; it may belong to another job, or hold another rank " +
                            std::to_string(ours_.rank) + " already");
  }
  if (!complete.value()) return;
  const Result<Hello> hello = decode_hello(peer.greeting.theirs);
  if (!hello.is_ok()) return failed(peer, hello.status().message());
  if (const Status fits = compatible(hello_as(peer.role), hello.value()); !fits.is_ok())
    return failed(peer, fits.message());
  if (hello.value().rank != peer.rank) {
    return failed(peer, "rank " + std::to_string(hello.value().rank) + " answers at this address");
  }
  peer.done = std::move(peer.greeting.fd);
  --missing_;
}

void Mesh::accept_all(TimePoint now) {
  for (std::size_t i = 0; i < peers_.size() + kSpareStrangers; ++i) {
    Result<Fd> fd = accept_one(listener_);
    if (!fd.is_ok()) {  // out of descriptors or memory: a stranger may have to go, and the listener has to wait
      accept_failed_ = fd.status().message();
      if (!strangers_.empty()) strangers_.erase(strangers_.begin());
      accept_again_at_ = now + milliseconds(kSliceMs);
      return;
    }
    if (!fd.value().valid()) return;
    // Ranks speak at once, so the oldest silent connection is the one to lose.
    if (strangers_.size() >= peers_.size() + kSpareStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(
        {.greeting = {std::move(fd).value(), {}, 0}, .patience_ends = now + kStrangerPatience});
  }
}

void Mesh::drop_impatient(TimePoint now) {
  std::erase_if(strangers_, [&](const Stranger& stranger) {
    if (now < stranger.patience_ends) return false;
    turned_away(to_string(peer_address(stranger.greeting.fd.get())) + ": it did not say hello within 3 s");
    return true;
  });
}

bool Mesh::stranger_ready(Stranger& stranger) {
  const Result<bool> complete = stranger.greeting.read();
  if (complete.is_ok() && !complete.value()) return false;
  const std::string from = to_string(peer_address(stranger.greeting.fd.get()));
  const std::optional<std::string> why =
      complete.is_ok() ? welcome(stranger) : std::optional<std::string>(complete.status().message());
  if (why) turned_away(from + ": " + *why);
  return true;
}

void Mesh::turned_away(const std::string& whom_and_why) {
  ++refusals_;
  refused_ = whom_and_why;
  constexpr std::size_t kTold = 8;  // a port scanner must not fill anybody's log
  if (refusals_ <= kTold) log_.warning("turned away a connection from " + whom_and_why);
  if (refusals_ == kTold) log_.warning("further connections will be turned away silently");
}

std::optional<std::string> Mesh::welcome(Stranger& stranger) {
  const Result<Hello> hello = decode_hello(stranger.greeting.theirs);
  if (!hello.is_ok()) return hello.status().message();
  const Hello& theirs = hello.value();
  const int fd = stranger.greeting.fd.get();
  const Role role = theirs.role == Role::kControl ? Role::kControl : Role::kData;
  if (const Status fits = compatible(hello_as(role), theirs); !fits.is_ok()) {
    // One of our job learns from our hello what differs. Others learn nothing.
    if (theirs.job == ours_.job) static_cast<void>(say_hello(fd, role));
    if (theirs.job == ours_.job && theirs.rank > ours_.rank && theirs.rank < ours_.size) {
      at(theirs.rank, role).happened = fits.message();
    }
    return fits.message();
  }
  if (theirs.rank <= ours_.rank || theirs.rank >= ours_.size) {
    return "rank " + std::to_string(theirs.rank) + " has no reason to call rank " +
           std::to_string(ours_.rank);
  }
  Peer& peer = at(theirs.rank, role);
  if (peer.done.valid()) return "a second process says that it is rank " + std::to_string(theirs.rank);
  tune(fd, role);
  if (const Status said = say_hello(fd, role); !said.is_ok()) return said.message();
  peer.done = std::move(stranger.greeting.fd);
  --missing_;
  return std::nullopt;
}

const Mesh::Peer* Mesh::missing_of(Rank rank) const {
  const auto is_missing = [rank](const Peer& peer) { return peer.rank == rank && !peer.done.valid(); };
  const auto found = std::find_if(peers_.begin(), peers_.end(), is_missing);
  return rank == ours_.rank || found == peers_.end() ? nullptr : &*found;
}

std::size_t Mesh::missing_ranks() const {
  std::size_t count = 0;
  for (Rank rank = 0; rank < ours_.size; ++rank) count += missing_of(rank) != nullptr ? 1 : 0;
  return count;
}

Status Mesh::say_who_is_missing(double waited_s) const {
  std::string text = "connect: " + std::to_string(missing_ranks()) + " of " + std::to_string(ours_.size - 1) +
                     " peers are missing:";
  Rank first = -1;
  for (Rank rank = 0; rank < ours_.size; ++rank) {
    const Peer* const missing = missing_of(rank);
    if (missing == nullptr) continue;
    const Peer& peer = *missing;
    if (first >= 0) text += ";";
    if (first < 0) first = rank;
    text += " rank " + std::to_string(rank) + " (" + addresses_[static_cast<std::size_t>(rank)] + ") ";
    if (rank > ours_.rank) {
      text += peer.happened.empty() ? "has not called us" : peer.happened;
    } else if (!peer.happened.empty()) {
      text += "does not answer after " + std::to_string(peer.attempts) + " attempts: " + peer.happened;
    } else {
      text += peer.connected ? "accepts connections but does not say hello" : "does not answer";
    }
  }
  if (refusals_ > 0)
    text += ". Turned away " + std::to_string(refusals_) + " connections, the last: " + refused_;
  if (!accept_failed_.empty()) text += ". At times nobody could be accepted: " + accept_failed_;
  text += ". Is every rank running, with the same addresses?";
  return Status(Code::kTimeout, text).with_rank(ours_.rank).with_peer(first).with_elapsed(waited_s);
}

}  // namespace

Result<MeshSockets> connect_mesh(const Hello& ours, int listener, const std::vector<std::string>& addresses,
                                 const WaitContext& context, const std::atomic<bool>& give_up,
                                 const Logger& log) {
  return Mesh(ours, listener, addresses, log).run(context, give_up);
}

}  // namespace pc
