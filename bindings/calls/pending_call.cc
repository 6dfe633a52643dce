#include "bindings/calls/pending_call.h"

#include <algorithm>
#include <utility>

#include "bindings/calls/gpu_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/state/errors.h"
#include "comm/run_call.h"

namespace pc {

PendingCall::PendingCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared)
    : state_(group.state),
      function_(prepared->function),
      nbytes_(prepared->nbytes()),
      prepared_(std::move(prepared)) {
  if (pc::is_on_gpu(*prepared_)) {
    array_ = Py_NewRef(array_on_gpu(*prepared_));
    stream_ = view_on_gpu(*prepared_)->gpu_stream();
    return;
  }
  hold_ = group.hold;
  std::copy(std::begin(prepared_->arrays), std::end(prepared_->arrays), held_);
  held_[2] = prepared_->result;
  for (PyObject* object : held_) Py_XINCREF(object);
}

PendingCall::~PendingCall() {
  prepared_.reset();  // before the arrays: its views refer to them
  for (PyObject* object : held_) Py_XDECREF(object);
  Py_XDECREF(array_);
}

bool PendingCall::begin(GroupObject& group) {
  return is_on_gpu() ? begin_on_gpu(group) : begin_on_host(group);
}

bool PendingCall::begin_on_host(const GroupObject& group) {
  std::function<void(const Status&)> on_end;
  const bool may_wait = waits(group) || prepared_->is_message();
  self_ = shared_from_this();  // first, since the call may end at once
  if (may_wait) on_end = [call = self_](const Status&) { ended(call); };
  const Status status = run(group, [&](Communicator& communicator) -> Status {
    PC_ASSIGN_OR_RETURN(handle_,
                        begin_call(communicator, *prepared_, {prepared_->timeout_s, std::move(on_end)}));
    return Status::ok();
  });
  if (!status.is_ok()) {
    self_.reset();
    if (PyErr_Occurred() == nullptr)
      raise_status(*group.state, status, process_of(*group.session, status.peer()));
    return false;
  }
  if (!may_wait) settle();
  return true;
}

// The on_end callback holds only a weak reference, because the handle owns the callback.
bool PendingCall::begin_on_gpu(GroupObject& group) {
  const std::unique_ptr<PreparedCall> prepared = std::move(prepared_);
  const auto on_end = [weak = weak_from_this()](const Status&) {
    if (std::shared_ptr<PendingCall> call = weak.lock()) ended(std::move(call));
  };
  if (!pc::begin_on_gpu(group, *prepared, on_end, &handle_)) return false;
  if (const std::shared_ptr<Runtime>& runtime = group.session->runtime; runtime != nullptr)
    devices_ = runtime->devices().made();
  return true;
}

void PendingCall::settle() {
  if (prepared_ == nullptr) return;
  const std::shared_ptr<PendingCall> self = std::move(self_);
  std::unique_ptr<PreparedCall> prepared = std::move(prepared_);
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (!prepared->note_write(*state_)) PyErr_Clear();
  prepared.reset();  // before the arrays: its views refer to them
  for (PyObject*& object : held_) Py_CLEAR(object);
  hold_.reset();
  PyErr_Restore(type, value, traceback);
}

void PendingCall::ended(std::shared_ptr<PendingCall> call) {
  call->notifier_.notify();
  EndedCalls* const calls = call->state_->ended_calls;
  calls->add(std::move(call));  // its last reference must be released with the GIL
}

bool PendingCall::ask_stream(std::optional<void*>* stream) const {
  return !is_on_gpu() || stream_->ask(array_, stream);
}

// Runs `wait(context, runtime)` without the GIL. Also returns null if a signal handler raised.
template <class Wait>
std::optional<Status> PendingCall::without_gil(const Session& session, double timeout_s, Wait&& wait) const {
  std::shared_ptr<Runtime> runtime = session.alive.lock();
  std::shared_ptr<Devices> devices = devices_.lock();
  const Deadline deadline = timeout_s < 0 ? Deadline(TimePoint::max()) : Deadline::after(timeout_s);
  std::optional<Status> outcome;
  {
    const WithoutGil released;
    outcome = wait(WaitContext{deadline, nullptr, &session.interrupted}, runtime.get());
    devices.reset();  // before the runtime, which they use
  }
  if (session.runtime == nullptr) let_go(std::move(runtime));
  if (PyErr_Occurred() != nullptr) outcome.reset();
  return outcome;
}

std::optional<Status> PendingCall::wait(const Session& session, double timeout_s, AsyncWork::Part part) {
  std::optional<Status> outcome;
  if (!is_on_gpu()) outcome = handle_->outcome();
  if (outcome) return outcome;
  return without_gil(session, timeout_s, [&](const WaitContext& context, const Runtime* runtime) {
    return handle_->wait(context, runtime == nullptr ? AsyncWork::Part::kWaitsOnly : part);
  });
}

std::optional<Status> PendingCall::precede(const Session& session, double timeout_s, void* stream) {
  return without_gil(session, timeout_s, [&](const WaitContext& context, const Runtime*) {
    return handle_->precede(context, plain_stream(stream));
  });
}

}  // namespace pc
