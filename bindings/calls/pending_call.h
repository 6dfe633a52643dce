// A call that goes on without its caller: what a Work in Python holds of it, and its arrays.
#pragma once

#include <memory>
#include <optional>

#include "bindings/calls/prepared_call.h"
#include "bindings/python/end_notifier.h"
#include "bindings/python/ended_calls.h"
#include "operation/async_work.h"

namespace pc {

// Of arrays of the host: it lives, with them, until it has ended, whether Python still knows it or not. What needs arrays of a GPU keeps
// them by itself (gpu_call.h). Thread-safety: with the GIL, except where a method says otherwise.
class PendingCall final : public Ended, public std::enable_shared_from_this<PendingCall> {
 public:
  PendingCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared);
  ~PendingCall();  // of one of the host that is settled, without the GIL as well
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  // False: a Python error is set, and it has not begun.
  bool begin(GroupObject& group);
  AsyncWork& handle() const { return *handle_; }
  const char* function() const { return function_; }
  std::size_t nbytes() const { return nbytes_; }
  EndNotifier& notifier() { return notifier_; }
  bool is_on_gpu() const { return array_ != nullptr; }
  // On which stream the arrays' library works now, in this thread. Empty: it has none to say, so the host has to wait. False: a
  // Python error is set.
  bool ask_stream(std::optional<void*>* stream) const;
  // AsyncWork::wait() and precede(), with the runtime kept alive, also beside a shutdown(). If it is going already, that ends the call.
  // Negative: without end. Null: the wait ended first, or a signal handler raised; the end can be asked for again.
  std::optional<Status> wait(const Session& session, double timeout_s, AsyncWork::Part part);
  std::optional<Status> precede(const Session& session, double timeout_s, void* stream);
  // It has ended: notes what it wrote, and lets its arrays go. Leaves Python errors as they are.
  void settle() override;

 private:
  bool begin_on_host(const GroupObject& group);
  bool begin_on_gpu(GroupObject& group);
  template <class Wait>
  std::optional<Status> without_gil(const Session& session, double timeout_s, Wait&& wait) const;
  static void ended(std::shared_ptr<PendingCall> call);  // without the GIL: its on_end

  State* const state_;
  const char* const function_;
  const std::size_t nbytes_;
  PyObject* array_ = nullptr;  // owned: its library says the stream. Null: of the host
  std::optional<GpuStream> stream_;
  std::unique_ptr<PreparedCall> prepared_;  // null once settled, or begun on a GPU
  std::shared_ptr<GroupHold> hold_;         // of the host, and null once settled, as are these
  PyObject* held_[3] = {};
  std::shared_ptr<AsyncWork> handle_;
  std::weak_ptr<Devices> devices_;     // they end with the world
  std::shared_ptr<PendingCall> self_;  // of the host: from begin() to settle()
  EndNotifier notifier_;
};

}  // namespace pc
