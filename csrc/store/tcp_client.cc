#include "store/tcp_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/fd.h"
#include "net/greeting.h"
#include "net/socket.h"
#include "store/protocol.h"

namespace pc {
namespace {

constexpr double kAttemptS = 2;  // a silent address must not use up the time of the other addresses
// With less time left, the client does not wait in the store, but sleeps and then looks the key up.
constexpr double kShortS = 0.02;
// A store of this job that does not match this process ends the search only after this time,
// because the right store may still start.
constexpr double kDoubtS = 1;
constexpr int kFirstPauseMs = 10, kLastPauseMs = 250;
constexpr std::size_t kMaxIdle = 4;  // connections kept for later calls
using Interrupted = std::function<bool()>;

// Waits for `events` on `fd`. With fd < 0 it only sleeps until the deadline and returns kTimeout.
Status wait_for(int fd, short events, Deadline deadline, const Interrupted& interrupted) {
  for (;;) {
    if (interrupted && interrupted())
      return Status(Code::kInterrupted, "interrupted while talking to the store");
    pollfd poll_for{fd, events, 0};
    const int ready = ::poll(&poll_for, 1, deadline.slice_ms());
    if (ready > 0) return Status::ok();
    if (ready < 0 && errno != EINTR) return system_error("poll for the store", errno);
    if (deadline.expired()) return Status(Code::kTimeout, "no answer in time");
  }
}

Status send_all(ByteStream& stream, std::string_view data, Deadline deadline,
                const Interrupted& interrupted) {
  while (!data.empty() || stream.unsent()) {
    const iovec part{const_cast<char*>(data.data()), data.size()};
    PC_TRY(stream.flush());
    std::size_t sent = 0;
    if (!data.empty()) {
      PC_ASSIGN_OR_RETURN(sent, stream.send({&part, 1}));
    }
    data.remove_prefix(sent);
    if (sent == 0) PC_TRY(wait_for(stream.fd(), POLLOUT, deadline, interrupted));
  }
  return Status::ok();
}

Status recv_all(ByteStream& stream, char* to, std::size_t nbytes, Deadline deadline,
                const Interrupted& interrupted) {
  while (nbytes > 0) {
    const iovec part{to, nbytes};
    PC_ASSIGN_OR_RETURN(const ByteStream::Received got, stream.receive({&part, 1}));
    if (got.end) return Status(Code::kPeerFailure, "the store closed the connection");
    to += got.nbytes;
    nbytes -= got.nbytes;
    if (got.nbytes == 0) PC_TRY(wait_for(stream.fd(), POLLIN, deadline, interrupted));
  }
  return Status::ok();
}

Result<Fd> open_connection(const SocketAddress& address, Deadline deadline, const Interrupted& interrupted) {
  PC_ASSIGN_OR_RETURN(Fd fd, new_socket(address));
  PC_TRY(start_connect(fd, address));
  PC_TRY(wait_for(fd.get(), POLLOUT, deadline, interrupted));
  if (const int error = connect_outcome(fd.get()); error != 0) return system_error("connect", error);
  expect_answers(fd.get());
  return fd;
}

// Connects to a store. Sets `differs` if the store's hello names this job and epoch but the
// handshake ends in a mismatch. Nothing proves that such a hello is genuine.
Result<ByteStream> shake_hands(Fd fd, const Credentials& credentials, uint32_t epoch, Deadline deadline,
                               const Interrupted& interrupted, bool& differs) {
  const Hello ours{.role = Role::kStore, .epoch = epoch};
  PC_ASSIGN_OR_RETURN(Handshake begun, Handshake::initiator(credentials, ours));
  Greeting greeting(std::move(fd), std::move(begun));
  const Handshake& handshake = greeting.handshake();
  PC_TRY(greeting.write());
  while (!handshake.done()) {
    PC_TRY(wait_for(greeting.fd(), POLLIN, deadline, interrupted));
    const Status status = greeting.move();
    differs = status.code() == Code::kMismatch && handshake.has_theirs() &&
              handshake.theirs().job == credentials.job && handshake.theirs().epoch == epoch;
    PC_TRY(status);
  }
  return greeting.finish();
}

// Memory grows with the bytes that have arrived, because the announced length may be wrong.
Result<std::string> recv_value(ByteStream& stream, std::size_t nbytes, Deadline deadline,
                               const Interrupted& interrupted) {
  constexpr std::size_t kPiece = 64UL * 1024;
  std::string value;
  while (value.size() < nbytes) {
    const std::size_t have = value.size();
    value.resize(std::min(nbytes, have + kPiece));
    PC_TRY(recv_all(stream, value.data() + have, value.size() - have, deadline, interrupted));
  }
  return value;
}

std::string_view name_of(StoreOp op) {
  switch (op) {
    case StoreOp::kSet: return "set";
    case StoreOp::kGet: return "get";
    case StoreOp::kAdd: return "add";
    case StoreOp::kErase: return "erase";
    case StoreOp::kEraseAll: return "erase all";
    case StoreOp::kPop: return "pop";
    case StoreOp::kWait: return "wait";
    case StoreOp::kKeys: return "keys";
    case StoreOp::kCompareSet: return "compare_set";
    case StoreOp::kAppend: return "append";
  }
  return "call";
}

// Thread-safety: all methods.
class TcpStore final : public Store {
 public:
  TcpStore(std::vector<std::string> addresses, const Credentials& credentials, Interrupted interrupted,
           uint32_t epoch)
      : addresses_(std::move(addresses)),
        credentials_(credentials),
        epoch_(epoch),
        interrupted_(std::move(interrupted)) {}

  void close_in_child() noexcept override {
    for (ByteStream& each : idle_)
      each.reset();  // takes no lock, because the thread that held it may be missing in the child
  }

  // Connects and keeps the connection for the first call. Returns the local address of the
  // connection.
  Result<std::string> connect(Deadline deadline) {
    PC_ASSIGN_OR_RETURN(ByteStream stream, connect_somewhere(deadline, 0));
    std::string local = ip_of(local_address(stream.fd()));
    give_back(std::move(stream));
    return local;
  }

 private:
  struct Received {
    StoreReply reply;
    std::string value;  // or the text of the error in `reply`
  };

  Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) override {
    if (!waits(call.op) || call.number == kAtOnce) return request(call, deadline);
    return deadline.one_way_s > 0 ? wait_and_look(call, deadline) : request(call, deadline);
  }

  // Besides waiting in the store, looks the key up once at the end, and also at the beginning if
  // little time is left. A missing key is therefore not mistaken for a store that does not answer.
  Result<StoreAnswer> wait_and_look(const StoreCall& call, StoreDeadline deadline) {
    const StoreCall look{call.op, call.key, {}, kAtOnce};
    if (deadline.remaining_s() <= deadline.one_way_s) {
      Result<StoreAnswer> there = request(look, deadline);
      if (!there.is_ok() || there.value().number != kMissing) return there;
      if (deadline.expired()) return key_timeout(call.key, true);
    }
    if (deadline.remaining_s() > kShortS) {
      bool asked = false;
      Result<StoreAnswer> waited = request(call, deadline, &asked);
      if (!asked || waited.is_ok() || waited.status().code() != Code::kTimeout) return waited;
    } else if (const Status waited = wait_for(-1, 0, deadline, interrupted_);
               waited.code() == Code::kInterrupted) {
      return waited;
    }
    Result<StoreAnswer> there = request(look, deadline);
    if (!there.is_ok() || there.value().number != kMissing) return there;
    return key_timeout(call.key, true);
  }

  // Sets `*was_asked` to true if the whole request was sent.
  Result<StoreAnswer> request(const StoreCall& call, StoreDeadline deadline, bool* was_asked = nullptr) {
    const StoreHeader header = encode(StoreRequest{call.op, static_cast<uint16_t>(call.key.size()),
                                                   static_cast<uint32_t>(call.value.size()), call.number});
    std::string message(header.data(), header.size());
    message.append(call.key).append(call.value);
    bool asked = false;
    const bool is_wait = waits(call.op) && call.number != kAtOnce;
    Result<Received> received = exchange(message, deadline, is_wait, asked);
    if (was_asked != nullptr) *was_asked = asked;
    if (received.is_ok()) {
      auto& [reply, value] = received.value();
      if (reply.code != Code::kOk) return Status(reply.code, value);
      return StoreAnswer{std::move(value), reply.number};
    }
    const Status& why = received.status();
    const bool is_silent = asked && why.code() == Code::kTimeout;
    if (is_silent && is_wait) return key_timeout(call.key, false);
    return Status(why.code(), "store " + std::string(name_of(call.op)) + " of key '" + std::string(call.key) +
                                  "': " + (is_silent ? "the store does not answer" : why.message()));
  }

  // If `is_wait`, the answer must arrive by the deadline; otherwise there are at least `one_way_s`
  // seconds for it. Sets `asked` once the whole request is sent.
  Result<Received> exchange(std::string_view message, StoreDeadline deadline, bool is_wait, bool& asked) {
    ByteStream stream = take_idle();
    if (!stream.valid()) {
      PC_ASSIGN_OR_RETURN(stream, connect_somewhere(deadline, std::min(kAttemptS, deadline.one_way_s)));
    }
    Deadline end = deadline;
    if (!is_wait) end = Deadline(std::max(end.when(), Deadline::after(deadline.one_way_s).when()));
    Result<Received> answer = ask(stream, message, end, asked);
    if (answer.is_ok()) {
      give_back(std::move(stream));
    } else {
      // The connection is not reused, because a late answer could be mistaken for the answer to the
      // next call. It is shut down explicitly, because a forked child may hold a copy of the
      // descriptor, and the store would then continue to wait for this client.
      ::shutdown(stream.fd(), SHUT_RDWR);
    }
    return answer;
  }

  Result<Received> ask(ByteStream& stream, std::string_view message, Deadline deadline, bool& asked) {
    PC_TRY(send_all(stream, message, deadline, interrupted_));
    asked = true;
    StoreHeader header;
    PC_TRY(recv_all(stream, header.data(), header.size(), deadline, interrupted_));
    Received answer;
    PC_ASSIGN_OR_RETURN(answer.reply, decode_reply(header));
    PC_ASSIGN_OR_RETURN(answer.value, recv_value(stream, answer.reply.value_nbytes, deadline, interrupted_));
    return answer;
  }

  // Tries all addresses again and again until the deadline. An attempt that begins before the
  // deadline may take `least_s` seconds even if it ends after the deadline.
  Result<ByteStream> connect_somewhere(Deadline deadline, double least_s) {
    int rounds = 0, pause_ms = kFirstPauseMs;
    const Deadline in_doubt = Deadline::after(kDoubtS);
    std::vector<std::string> causes(addresses_.size());
    for (;;) {
      ++rounds;
      Status difference;
      for (std::size_t i = 0; i < addresses_.size(); ++i) {
        bool differs = false;
        Result<ByteStream> stream = connect_to(addresses_[i], deadline, least_s, differs);
        if (stream.is_ok() || stream.status().code() == Code::kInterrupted ||
            stream.status().code() == Code::kInvalidArgument)
          return stream;
        if (differs)
          difference = Status(stream.status().code(),
                              "the store at " + addresses_[i] + ": " + stream.status().message());
        // The last attempt often times out because no time is left. Its timeout says nothing about
        // the store, so an earlier cause is kept.
        if (causes[i].empty() || stream.status().code() != Code::kTimeout)
          causes[i] = stream.status().message();
      }
      if (in_doubt.expired() && !difference.is_ok()) return difference;
      const Deadline pause = Deadline::after(std::min(pause_ms / 1e3, std::max(deadline.remaining_s(), 0.0)));
      const Status waited = wait_for(-1, 0, pause, interrupted_);
      if (waited.code() == Code::kInterrupted) return waited;
      if (deadline.expired()) return unreachable(rounds, causes);
      pause_ms = std::min(pause_ms * 3 / 2, kLastPauseMs);
    }
  }

  Result<ByteStream> connect_to(const std::string& text, Deadline deadline, double least_s, bool& differs) {
    PC_ASSIGN_OR_RETURN(const SocketAddress address, parse_endpoint(text));
    const Deadline attempt = Deadline::after(std::min(kAttemptS, std::max(deadline.remaining_s(), least_s)));
    PC_ASSIGN_OR_RETURN(Fd fd, open_connection(address, attempt, interrupted_));
    return shake_hands(std::move(fd), credentials_, epoch_, attempt, interrupted_, differs);
  }

  Status unreachable(int rounds, const std::vector<std::string>& causes) const {
    std::vector<std::pair<std::string, std::string>> reasons;  // pairs of (addresses, their common reason)
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      const auto same =
          std::find_if(reasons.begin(), reasons.end(), [&](auto& each) { return each.second == causes[i]; });
      if (same == reasons.end())
        reasons.emplace_back(addresses_[i], causes[i]);
      else
        same->first += ", " + addresses_[i];
    }
    std::string text = "cannot reach the store";
    for (const auto& [where, why] : reasons)
      text += (&where == &reasons.front().first ? " at " : "; at ") + where + ": " + why;
    text += " (" + std::to_string(rounds) + (rounds == 1 ? " attempt" : " attempts") +
            "). Check that rank 0 runs, that " +
            "every rank was given its address and this job's key, and that no firewall blocks it";
    return Status(Code::kTimeout, text);
  }

  ByteStream take_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return ByteStream();
    ByteStream stream = std::move(idle_.back());
    idle_.pop_back();
    return stream;
  }
  void give_back(ByteStream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(stream));
  }

  const std::vector<std::string> addresses_;
  const Credentials credentials_;
  const uint32_t epoch_;
  const Interrupted interrupted_;
  std::mutex mutex_;  // guards idle_
  std::vector<ByteStream> idle_;
};

}  // namespace

Result<StoreConnection> connect_tcp_store(const std::vector<std::string>& addresses,
                                          const Credentials& credentials, Deadline deadline,
                                          std::function<bool()> interrupted, uint32_t epoch) {
  if (addresses.empty()) return Status(Code::kInvalidArgument, "no store address was given");
  auto store = std::make_unique<TcpStore>(addresses, credentials, std::move(interrupted), epoch);
  PC_ASSIGN_OR_RETURN(std::string local_ip, store->connect(deadline));
  return StoreConnection{std::move(store), std::move(local_ip)};
}

}  // namespace pc
