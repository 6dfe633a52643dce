// Calls on GPU arrays. They are queued on the stream that the arrays' library reports: after the
// work that produces the arrays, and before later work on that stream. The host does not wait for
// this work.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bindings/calls/prepared_call.h"
#include "comm/devices.h"

namespace pc {

bool is_on_gpu(const PreparedCall& call);
const View* view_on_gpu(const PreparedCall& call);  // the first view on a GPU, or null
PyObject* array_on_gpu(const PreparedCall& call);   // the array of view_on_gpu(), borrowed
void* plain_stream(void* stream);                   // maps both names of the legacy default stream to null

// Implements RuntimeOptions::make_devices for the session's runtime; `session` may be null if it
// has been destroyed. Takes the GIL and runs arbitrary Python code. If that fails, the Python error
// is set in this thread and the Status has no message.
Result<std::shared_ptr<Devices>> make_devices(const State& state, const std::shared_ptr<Session>& session,
                                              Runtime& runtime);

// Returns nullptr with a Python error set.
PyObject* run_on_gpu(GroupObject& group, PreparedCall& call);
// Begins a call. Keeps what the call needs of its arrays until the end of the call has been
// observed. Marks the written arrays before it returns. Returns false with a Python error set.
bool begin_on_gpu(GroupObject& group, PreparedCall& call, std::function<void(const Status&)> on_end,
                  std::shared_ptr<AsyncWork>* begun);

// _join_gpus(device): connects the ranks on their GPUs, as the first call on GPU arrays would.
// Returns nullptr with a Python error set.
PyObject* join_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Python: _can_split_gpus(), _split_gpus(child, timeout); see Devices::split().
PyObject* can_split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Describes the path of a collective, or of a message, on GPU arrays. Does not open a driver.
std::string explain_on_gpu(const GroupObject& group, std::optional<Collective> collective);

}  // namespace pc
