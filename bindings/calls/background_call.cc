#include "bindings/calls/background_call.h"

#include <algorithm>

#include "bindings/calls/running_call.h"
#include "bindings/state/errors.h"

namespace pc {

BackgroundCall::BackgroundCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared)
    : state_(group.state),
      function_(prepared->function),
      nbytes_(prepared->nbytes()),
      prepared_(std::move(prepared)),
      hold_(group.hold),
      ended_calls_(group.state->ended_calls) {
  std::copy(std::begin(prepared_->arrays), std::end(prepared_->arrays), held_);
  held_[2] = prepared_->result;
  for (PyObject* object : held_) Py_XINCREF(object);
}

BackgroundCall::~BackgroundCall() {
  if (prepared_ == nullptr) return;
  prepared_.reset();  // its views belong to the arrays
  for (PyObject* object : held_) Py_XDECREF(object);
}

bool BackgroundCall::begin(const GroupObject& group, const std::shared_ptr<BackgroundCall>& call) {
  std::function<void(const Status&)> on_end;
  const bool may_wait = waits(group) || call->prepared_->is_message();
  if (may_wait) on_end = [call](const Status&) { call->ended(); };
  call->self_ = call;  // first: it may end at once
  const Status status = run(group, [&](Communicator& communicator) {
    Result<std::shared_ptr<AsyncWork>> begun =
        call->prepared_->begin(communicator, {call->prepared_->timeout_s, std::move(on_end)});
    if (!begun.is_ok()) return begun.status();
    call->call_ = std::move(begun).value();
    return Status();
  });
  if (!status.is_ok()) {
    call->self_.reset();
    if (PyErr_Occurred() == nullptr)
      raise_status(*group.state, status, process_of(*group.session, status.peer()));
    return false;
  }
  if (!may_wait) call->settle();
  return true;
}

void BackgroundCall::settle() {
  if (prepared_ == nullptr) return;
  const std::shared_ptr<BackgroundCall> self = std::move(self_);
  std::unique_ptr<PreparedCall> prepared = std::move(prepared_);
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (!prepared->note_write(*state_)) PyErr_Clear();
  prepared.reset();  // its views belong to the arrays
  for (PyObject*& object : held_) Py_CLEAR(object);
  hold_.reset();
  PyErr_Restore(type, value, traceback);
}

void BackgroundCall::ended() {
  bell_.ring();
  ended_calls_->add(shared_from_this());
}

}  // namespace pc
