#include "base/status.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace pc {
namespace {
const std::string kNothing;

// The names of the errors that system calls of pycollective can return. glibc has a function for
// the names of all errors, but only since version 2.32.
#define PC_NAMED(error) std::pair<int, const char*>(error, #error)
constexpr std::pair<int, const char*> kErrorNames[] = {
    PC_NAMED(E2BIG),        PC_NAMED(EACCES),       PC_NAMED(EADDRINUSE),   PC_NAMED(EADDRNOTAVAIL),
    PC_NAMED(EAFNOSUPPORT), PC_NAMED(EAGAIN),       PC_NAMED(EBADF),        PC_NAMED(EBUSY),
    PC_NAMED(ECANCELED),    PC_NAMED(ECHILD),       PC_NAMED(ECONNABORTED), PC_NAMED(ECONNREFUSED),
    PC_NAMED(ECONNRESET),   PC_NAMED(EDESTADDRREQ), PC_NAMED(EDQUOT),       PC_NAMED(EEXIST),
    PC_NAMED(EFAULT),       PC_NAMED(EFBIG),        PC_NAMED(EHOSTDOWN),    PC_NAMED(EHOSTUNREACH),
    PC_NAMED(EINPROGRESS),  PC_NAMED(EINTR),        PC_NAMED(EINVAL),       PC_NAMED(EIO),
    PC_NAMED(EISCONN),      PC_NAMED(EISDIR),       PC_NAMED(ELOOP),        PC_NAMED(EMFILE),
    PC_NAMED(EMSGSIZE),     PC_NAMED(ENAMETOOLONG), PC_NAMED(ENETDOWN),     PC_NAMED(ENETRESET),
    PC_NAMED(ENETUNREACH),  PC_NAMED(ENFILE),       PC_NAMED(ENOBUFS),      PC_NAMED(ENODEV),
    PC_NAMED(ENOENT),       PC_NAMED(ENOEXEC),      PC_NAMED(ENOMEM),       PC_NAMED(ENOPROTOOPT),
    PC_NAMED(ENOSPC),       PC_NAMED(ENOSYS),       PC_NAMED(ENOTCONN),     PC_NAMED(ENOTDIR),
    PC_NAMED(ENOTSOCK),     PC_NAMED(ENOTSUP),      PC_NAMED(ENXIO),        PC_NAMED(EOVERFLOW),
    PC_NAMED(EPERM),        PC_NAMED(EPIPE),        PC_NAMED(EPROTO),       PC_NAMED(EPROTONOSUPPORT),
    PC_NAMED(ERANGE),       PC_NAMED(EROFS),        PC_NAMED(ESHUTDOWN),    PC_NAMED(ESRCH),
    PC_NAMED(ETIMEDOUT),    PC_NAMED(ETXTBSY),      PC_NAMED(EXDEV)};
#undef PC_NAMED

}  // namespace

std::string_view name_of(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kMismatch: return "mismatch";
    case Code::kTimeout: return "timeout";
    case Code::kPeerFailure: return "peer failure";
    case Code::kPeerExited: return "peer exited";
    case Code::kPeerInterrupted: return "peer interrupted";
    case Code::kInterrupted: return "interrupted";
    case Code::kAborted: return "aborted";
    case Code::kUnsupported: return "unsupported";
    case Code::kExcluded: return "excluded";
    case Code::kNotInitialized: return "not initialized";
    case Code::kSystem: return "system";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

Status::Status(Code code, std::string message) {
  if (code == Code::kOk) return;
  State state{code, std::move(message), -1, -1, {}, -1.0, 0, {}};
  state_ = std::make_shared<const State>(std::move(state));
}

const std::string& Status::message() const { return state_ ? state_->message : kNothing; }
const std::string& Status::operation() const { return state_ ? state_->operation : kNothing; }
const std::string& Status::cause() const { return state_ ? state_->cause : kNothing; }

template <class F>
Status Status::edited(F edit) const {
  if (!state_) return *this;
  State state = *state_;
  edit(state);
  Status result;
  result.state_ = std::make_shared<const State>(std::move(state));
  return result;
}

Status Status::with_rank(Rank rank) const {
  return edited([&](State& s) {
    if (s.rank < 0) s.rank = rank;
  });
}
Status Status::with_peer(Rank peer) const {
  return edited([&](State& s) {
    if (s.peer < 0) s.peer = peer;
  });
}
Status Status::with_operation(std::string_view operation) const {
  return edited([&](State& s) {
    if (s.operation.empty()) s.operation = operation;
  });
}
Status Status::with_elapsed(double seconds) const {
  return edited([&](State& s) {
    if (s.elapsed_s < 0) s.elapsed_s = seconds;
  });
}

Status Status::with_sequence(uint64_t sequence) const {
  return edited([&](State& s) {
    if (s.sequence == 0) s.sequence = sequence;
  });
}
Status Status::with_cause(std::string_view cause) const {
  return edited([&](State& s) {
    if (s.cause.empty()) s.cause = cause;
  });
}

std::string Status::to_string() const {
  if (!state_) return "ok";
  std::string text = state_->operation;
  if (state_->rank >= 0) {
    text += text.empty() ? "rank " : " on rank ";
    text += std::to_string(state_->rank);
  }
  if (state_->elapsed_s >= 0) {
    char after[32];
    std::snprintf(after, sizeof after, "%s%.3g s", text.empty() ? "after " : " after ", state_->elapsed_s);
    text += after;
  }
  if (!text.empty()) text += ": ";
  return text + state_->message;
}

Status system_error(std::string_view call, int error_number) {
  std::string message(call);
  message += ": ";
  char text[128];
  message += ::strerror_r(error_number, text, sizeof text);
  for (const auto& [number, name] : kErrorNames) {
    if (number == error_number) message += std::string(" (") + name + ")";
  }
  if (error_number == EMFILE) message += ": this process may open no more files; raise `ulimit -n`";
  return Status(Code::kSystem, std::move(message));
}

}  // namespace pc
