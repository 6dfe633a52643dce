// Errors are values. A Status holds what failed, with which peer and in which operation; an OK
// Status is only a null pointer. A Result<T> is a T or a Status. No code below the bindings throws.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/types.h"

namespace pc {

enum class Code : uint8_t {
  kOk,
  kInvalidArgument,  // the caller's mistake; nothing was sent and no state changed
  kMismatch,         // ranks disagree about a call
  kTimeout,          // a deadline passed
  kPeerFailure,      // a peer died or its connection broke
  kPeerExited,       // a peer exited in an orderly manner
  kPeerInterrupted,  // Ctrl-C at another rank
  kInterrupted,      // Ctrl-C
  kAborted,          // another rank or thread ended this operation; the message has the cause
  kUnsupported,      // valid, but this build or path cannot do it
  kExcluded,         // the other ranks consider this rank dead
  kNotInitialized,
  kSystem,    // a system call failed; the message has the call, the errno text and the address
  kInternal,  // a bug in pycollective
};
std::string_view name_of(Code code);

// Thread-safety: a Status is an immutable value; copies share their state.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);
  static Status ok() { return Status(); }

  bool is_ok() const { return state_ == nullptr; }
  explicit operator bool() const = delete;  // use is_ok(): "if (status)" can be read both ways
  Code code() const { return state_ ? state_->code : Code::kOk; }
  const std::string& message() const;

  // The context of the error. Each method returns a copy with one more fact. A fact that is set
  // already is kept, so that a caller further up cannot overwrite what was recorded at the origin
  // of the error.
  Status with_rank(Rank rank) const;
  Status with_peer(Rank peer) const;
  Status with_operation(std::string_view operation) const;  // "allreduce #12 (ring, 64 MiB float32)"
  Status with_elapsed(double seconds) const;
  Status with_sequence(uint64_t sequence) const;            // the operation's number in its group
  Status with_cause(std::string_view cause) const;          // how a peer ended: "connection closed"
  Rank rank() const { return state_ ? state_->rank : -1; }  // -1: not known
  Rank peer() const { return state_ ? state_->peer : -1; }
  const std::string& operation() const;
  uint64_t sequence() const { return state_ ? state_->sequence : 0; }  // 0: not known, or not a collective
  const std::string& cause() const;
  double elapsed_s() const { return state_ ? state_->elapsed_s : -1.0; }

  // Text for users and logs: "allreduce #12 (ring, 64 MiB float32) on rank 3 after 30 s: ...".
  std::string to_string() const;

 private:
  struct State {
    Code code;
    std::string message;
    Rank rank = -1;
    Rank peer = -1;
    std::string operation;
    double elapsed_s = -1.0;
    uint64_t sequence = 0;
    std::string cause;
  };
  template <class F>
  Status edited(F edit) const;
  std::shared_ptr<const State> state_;
};

inline Status invalid_argument(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}
inline Status unsupported(std::string message) { return Status(Code::kUnsupported, std::move(message)); }
// Returns a kSystem error: "connect 127.0.0.1:4711: Connection refused (ECONNREFUSED)". `call`
// names the system call and its object: "connect 127.0.0.1:4711".
Status system_error(std::string_view call, int error_number);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : v_(std::move(status)) {}  // NOLINT(google-explicit-constructor): must not be OK
  bool is_ok() const { return v_.index() == 0; }
  const Status& status() const {  // OK if there is a value
    static const Status kFine;
    return is_ok() ? kFine : std::get<1>(v_);
  }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }

 private:
  std::variant<T, Status> v_;
};

// Evaluates `expr`, which is a Status. Unless the Status is OK, the enclosing function returns it.
#define PC_TRY(expr)                                    \
  do {                                                  \
    ::pc::Status pc_try_status_ = (expr);               \
    if (!pc_try_status_.is_ok()) return pc_try_status_; \
  } while (0)

#define PC_CONCAT_(a, b) a##b
#define PC_CONCAT(a, b) PC_CONCAT_(a, b)
// Assigns the value of a Result; if the Result is an error, the enclosing function returns that
// error. Example: PC_ASSIGN_OR_RETURN(auto fd, listen_on(address));
#define PC_ASSIGN_OR_RETURN(declaration, expr) \
  PC_ASSIGN_OR_RETURN_(declaration, expr, PC_CONCAT(pc_result_, __LINE__))
#define PC_ASSIGN_OR_RETURN_(declaration, expr, result) \
  auto result = (expr);                                 \
  if (!result.is_ok()) return result.status();          \
  declaration = std::move(result).value()

}  // namespace pc
