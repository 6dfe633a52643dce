// A call that continues without its caller. A Work in Python shares the PendingCall, which keeps
// the arrays of the call.
#pragma once

#include <memory>
#include <optional>

#include "bindings/calls/prepared_call.h"
#include "bindings/python/end_notifier.h"
#include "bindings/python/ended_calls.h"
#include "operation/async_work.h"

namespace pc {

// A PendingCall on host arrays keeps itself and the arrays alive until the call has ended, even if
// Python has dropped the Work. The arrays of a call on a GPU are kept elsewhere (KeptArrays in
// gpu_call.cc). Thread-safety: with the GIL, except where a method documents otherwise.
class PendingCall final : public Ended, public std::enable_shared_from_this<PendingCall> {
 public:
  PendingCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared);
  ~PendingCall();  // may run without the GIL only for a settled call on the host
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  // Returns false with a Python error set; then the call has not begun.
  bool begin(GroupObject& group);
  AsyncWork& handle() const { return *handle_; }
  const char* function() const { return function_; }
  std::size_t nbytes() const { return nbytes_; }
  EndNotifier& notifier() { return notifier_; }
  bool is_on_gpu() const { return array_ != nullptr; }
  // Sets `*stream` to the stream on which the arrays' library works now in this thread. Leaves it
  // empty if the library reports none, so that the host must wait. Returns false with a Python
  // error set.
  bool ask_stream(std::optional<void*>* stream) const;
  // AsyncWork::wait() and precede(). They keep the runtime alive, even during a concurrent
  // shutdown(). If the destruction of the runtime has already begun, it ends the call. A negative
  // timeout means no limit. They return null if the timeout expired or a signal handler raised; the
  // caller may wait again.
  std::optional<Status> wait(const Session& session, double timeout_s, AsyncWork::Part part);
  std::optional<Status> precede(const Session& session, double timeout_s, void* stream);
  // After the end of the call: marks what it wrote and releases its arrays. Leaves Python errors
  // unchanged.
  void settle() override;

 private:
  bool begin_on_host(const GroupObject& group);
  bool begin_on_gpu(GroupObject& group);
  template <class Wait>
  std::optional<Status> without_gil(const Session& session, double timeout_s, Wait&& wait) const;
  static void ended(std::shared_ptr<PendingCall> call);  // the on_end callback; runs without the GIL

  State* const state_;
  const char* const function_;
  const std::size_t nbytes_;
  PyObject* array_ = nullptr;  // Owned; its library reports the stream. Null for a call on the host.
  std::optional<GpuStream> stream_;
  std::unique_ptr<PreparedCall> prepared_;  // null once settled, or once begun on a GPU
  std::shared_ptr<GroupHold> hold_;         // For a call on the host; this and held_ are null once settled.
  PyObject* held_[3] = {};
  std::shared_ptr<AsyncWork> handle_;
  std::weak_ptr<Devices> devices_;     // the devices end with the world
  std::shared_ptr<PendingCall> self_;  // set from begin() to settle(), for a call on the host
  EndNotifier notifier_;
};

}  // namespace pc
