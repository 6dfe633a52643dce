#include "store/tcp_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "base/fd.h"
#include "store/endpoint.h"
#include "store/limits.h"
#include "store/protocol.h"

namespace pc {
namespace {

constexpr int kSliceMs = 50;     // between two looks at the interrupt probe
constexpr double kAttemptS = 2;  // one silent address must not use up the time of the others
constexpr int kFirstPauseMs = 10, kLastPauseMs = 250;
constexpr std::size_t kMaxIdle = 4;  // connections kept for the next call
using Interrupted = std::function<bool()>;

// fd < 0: just lets the time pass.
Status wait_for(int fd, short events, Deadline deadline, const Interrupted& interrupted) {
  for (;;) {
    if (interrupted && interrupted())
      return Status(Code::kInterrupted, "interrupted while talking to the store");
    pollfd poll_for{fd, events, 0};
    const int ready = ::poll(&poll_for, 1, deadline.slice_ms(kSliceMs));
    if (ready > 0) return Status::ok();
    if (ready < 0 && errno != EINTR) return system_error("poll for the store", errno);
    if (deadline.expired()) return Status(Code::kTimeout, "no answer in time");
  }
}

Status send_all(int fd, std::string_view data, Deadline deadline, const Interrupted& interrupted) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      data.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      PC_TRY(wait_for(fd, POLLOUT, deadline, interrupted));
    } else if (errno != EINTR) {
      return system_error("send to the store", errno);
    }
  }
  return Status::ok();
}

Status recv_all(int fd, char* to, std::size_t nbytes, Deadline deadline, const Interrupted& interrupted) {
  while (nbytes > 0) {
    const ssize_t n = ::recv(fd, to, nbytes, MSG_DONTWAIT);
    if (n > 0) {
      to += n;
      nbytes -= static_cast<std::size_t>(n);
    } else if (n == 0) {
      return Status(Code::kPeerFailure, "the store closed the connection");
    } else if (errno == EAGAIN) {
      PC_TRY(wait_for(fd, POLLIN, deadline, interrupted));
    } else if (errno != EINTR) {
      return system_error("receive from the store", errno);
    }
  }
  return Status::ok();
}

Result<Fd> open_connection(const Endpoint& endpoint, Deadline deadline, const Interrupted& interrupted) {
  Fd fd(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return system_error("socket", errno);
  int error = ::connect(fd.get(), endpoint.get(), endpoint.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    PC_TRY(wait_for(fd.get(), POLLOUT, deadline, interrupted));
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error != 0) return system_error("connect", error);
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  return fd;
}

Status greet(int fd, const JobId& job, Deadline deadline, const Interrupted& interrupted) {
  Hello ours;
  ours.role = Role::kStore;
  ours.job = job;
  HelloBytes bytes;
  encode(ours, bytes);
  PC_TRY(send_all(fd, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, deadline, interrupted));
  const Status answered =
      recv_all(fd, reinterpret_cast<char*>(bytes.data()), bytes.size(), deadline, interrupted);
  if (answered.code() == Code::kPeerFailure) {  // what a store does to strangers
    return Status(
        Code::kPeerFailure,
        "it closed the connection without a word: it is no store, or that of another job than ours (" +
            fingerprint(job) + ")");
  }
  PC_TRY(answered);
  PC_ASSIGN_OR_RETURN(const Hello theirs, decode_hello(bytes));
  return compatible(ours, theirs);
}

// Memory grows with what has really come, whatever length was announced.
Result<std::string> recv_value(int fd, std::size_t nbytes, Deadline deadline,
                               const Interrupted& interrupted) {
  constexpr std::size_t kPiece = 64 * 1024;
  std::string value;
  while (value.size() < nbytes) {
    const std::size_t have = value.size();
    value.resize(std::min(nbytes, have + kPiece));
    PC_TRY(recv_all(fd, value.data() + have, value.size() - have, deadline, interrupted));
  }
  return value;
}

std::string_view name_of(StoreOp op) {
  switch (op) {
    case StoreOp::kSet: return "set";
    case StoreOp::kGet: return "get";
    case StoreOp::kAdd: return "add";
    case StoreOp::kErase: return "erase";
  }
  return "call";
}

// Thread-safety: all methods.
class TcpStore final : public Store {
 public:
  TcpStore(std::vector<std::string> addresses, const JobId& job, Interrupted interrupted)
      : addresses_(std::move(addresses)),
        job_(job),
        interrupted_(std::move(interrupted)) {}

  Status set(std::string_view key, std::string_view value, Deadline deadline) override {
    PC_TRY(check_entry(key, value));
    return call(StoreOp::kSet, key, value, 0, deadline).status();
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    PC_TRY(check_key(key));
    PC_ASSIGN_OR_RETURN(Answer answer, call(StoreOp::kGet, key, {}, 0, deadline));
    return std::move(answer.value);
  }
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) override {
    PC_TRY(check_key(key));
    PC_ASSIGN_OR_RETURN(const Answer answer, call(StoreOp::kAdd, key, {}, delta, deadline));
    return answer.reply.number;
  }
  Status erase(std::string_view key, Deadline deadline) override {
    PC_TRY(check_key(key));
    return call(StoreOp::kErase, key, {}, 0, deadline).status();
  }

  // Leaves the connection for the first call.
  Status connect(Deadline deadline) {
    PC_ASSIGN_OR_RETURN(Fd fd, connect_somewhere(deadline));
    give_back(std::move(fd));
    return Status::ok();
  }

 private:
  struct Answer {
    StoreReply reply;
    std::string value;  // or the text of the error in `reply`
  };

  Result<Answer> call(StoreOp op, std::string_view key, std::string_view value, int64_t delta,
                      Deadline deadline) {
    const StoreHeader header = encode(
        StoreRequest{op, static_cast<uint16_t>(key.size()), static_cast<uint32_t>(value.size()), delta});
    std::string message(header.data(), header.size());
    message.append(key).append(value);
    bool asked = false;
    Result<Answer> answer = exchange(message, deadline, asked);
    if (answer.is_ok()) {
      const Code code = answer.value().reply.code;
      return code == Code::kOk ? std::move(answer) : Status(code, answer.value().value);
    }
    const Status& why = answer.status();
    // Only a store that was asked and stays silent means that the key is missing.
    if (op == StoreOp::kGet && asked && why.code() == Code::kTimeout) return key_timeout(key);
    return Status(why.code(), "store " + std::string(name_of(op)) + " of key '" + std::string(key) +
                                  "': " + why.message());
  }

  // `asked`: the request was sent whole.
  Result<Answer> exchange(std::string_view message, Deadline deadline, bool& asked) {
    Fd fd = take_idle();
    if (!fd.valid()) {
      PC_ASSIGN_OR_RETURN(fd, connect_somewhere(deadline));
    }
    // On every failure the connection is dropped: an answer may still come that would be taken for the next one's.
    PC_TRY(send_all(fd.get(), message, deadline, interrupted_));
    asked = true;
    StoreHeader header;
    PC_TRY(recv_all(fd.get(), header.data(), header.size(), deadline, interrupted_));
    Answer answer;
    PC_ASSIGN_OR_RETURN(answer.reply, decode_reply(header));
    PC_ASSIGN_OR_RETURN(answer.value,
                        recv_value(fd.get(), answer.reply.value_nbytes, deadline, interrupted_));
    give_back(std::move(fd));
    return answer;
  }

  Result<Fd> connect_somewhere(Deadline deadline) {
    int rounds = 0, pause_ms = kFirstPauseMs;
    std::vector<std::string> causes(addresses_.size());
    for (;;) {
      ++rounds;
      for (std::size_t i = 0; i < addresses_.size(); ++i) {
        Result<Fd> fd = connect_to(addresses_[i], deadline);
        if (fd.is_ok() || fd.status().code() == Code::kInterrupted ||
            fd.status().code() == Code::kInvalidArgument)
          return fd;
        causes[i] = fd.status().message();
      }
      const Deadline pause = Deadline::after(std::min(pause_ms / 1e3, std::max(deadline.remaining_s(), 0.0)));
      const Status waited = wait_for(-1, 0, pause, interrupted_);
      if (waited.code() == Code::kInterrupted) return waited;
      if (deadline.expired()) return unreachable(rounds, causes);
      pause_ms = std::min(pause_ms * 3 / 2, kLastPauseMs);
    }
  }

  Result<Fd> connect_to(const std::string& address, Deadline deadline) {
    PC_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, resolve(address));
    Status last(Code::kSystem, "the name has no address");
    for (const Endpoint& endpoint : endpoints) {
      const Deadline attempt = Deadline::after(std::min(kAttemptS, std::max(deadline.remaining_s(), 0.0)));
      Result<Fd> fd = open_connection(endpoint, attempt, interrupted_);
      last = fd.is_ok() ? greet(fd.value().get(), job_, attempt, interrupted_) : fd.status();
      if (last.is_ok()) return fd;
      if (last.code() == Code::kInterrupted) break;
    }
    return last;
  }

  Status unreachable(int rounds, const std::vector<std::string>& causes) const {
    std::string text = "cannot reach the store";
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      text += (i == 0 ? " at " : "; at ") + addresses_[i] + ": " + causes[i];
    }
    text += " (" + std::to_string(rounds) + (rounds == 1 ? " attempt" : " attempts") +
            "). Check that rank 0 runs, that " +
            "every rank was given its address and this job's key, and that no firewall stands between";
    return Status(Code::kTimeout, text);
  }

  Fd take_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return Fd();
    Fd fd = std::move(idle_.back());
    idle_.pop_back();
    return fd;
  }
  void give_back(Fd fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(fd));
  }

  const std::vector<std::string> addresses_;
  const JobId job_;
  const Interrupted interrupted_;
  std::mutex mutex_;  // guards idle_
  std::vector<Fd> idle_;
};

}  // namespace

Result<std::unique_ptr<Store>> connect_tcp_store(const std::vector<std::string>& addresses, const JobId& job,
                                                 Deadline deadline, std::function<bool()> interrupted) {
  if (addresses.empty()) return Status(Code::kInvalidArgument, "no store address was given");
  auto store = std::make_unique<TcpStore>(addresses, job, std::move(interrupted));
  PC_TRY(store->connect(deadline));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace pc
