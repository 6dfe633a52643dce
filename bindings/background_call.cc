#include "background_call.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "bind_errors.h"
#include "running_call.h"

namespace pc {

BackgroundCall::BackgroundCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared)
    : state_(group.state),
      function_(prepared->function),
      nbytes_(prepared->nbytes()),
      prepared_(std::move(prepared)),
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
  std::function<void()> on_end;
  if (waits(group)) on_end = [call] { call->ended(); };
  call->self_ = call;  // first: it may end at once
  const Status status = run(group, [&](Communicator& communicator) {
    Result<std::shared_ptr<AsyncCall>> begun = call->prepared_->begin(communicator, std::move(on_end));
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
  if (!waits(group)) call->settle();
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
  PyErr_Restore(type, value, traceback);
}

bool BackgroundCall::watch(int fd) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return false;
  if (std::find(watching_.begin(), watching_.end(), fd) == watching_.end()) watching_.push_back(fd);
  return true;
}

void BackgroundCall::unwatch(int fd) {
  const std::lock_guard lock(mutex_);
  std::erase(watching_, fd);
}

void BackgroundCall::ended() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    for (const int fd : watching_) ::eventfd_write(fd, 1);
    watching_.clear();
  }
  ended_calls_->add(shared_from_this());
}

// ---- EndedCalls

void EndedCalls::add(std::shared_ptr<BackgroundCall> call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    any_.store(true);
  }
  if (asked_.exchange(true)) return;
  // Needs no GIL. The queue may be full: then whoever comes next settles them.
  if (Py_AddPendingCall([](void* self) { return static_cast<EndedCalls*>(self)->settle(), 0; }, this) != 0)
    asked_.store(false);
}

void EndedCalls::settle() {
  asked_.store(false);
  if (!any_.load()) return;
  std::vector<std::shared_ptr<BackgroundCall>> calls;
  {
    // Whoever holds it adds a call, and asks once more afterwards. In a child forked meanwhile he is not there.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    calls.swap(calls_);
    any_.store(false);
  }
  for (const std::shared_ptr<BackgroundCall>& call : calls) call->settle();
}

}  // namespace pc
