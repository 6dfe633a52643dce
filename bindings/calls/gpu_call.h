// Calls of arrays on a GPU. They are queued behind what makes the arrays, on the stream that the arrays' library says, and in
// front of what it does there next: the host waits for none of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bindings/calls/prepared_call.h"
#include "comm/devices.h"

namespace pc {

bool is_on_gpu(const PreparedCall& call);
const View* view_on_gpu(const PreparedCall& call);  // the first; null: there is none
PyObject* array_on_gpu(const PreparedCall& call);   // whose that is: borrowed
void* plain_stream(void* stream);                   // the legacy default stream has two names

// RuntimeOptions::make_devices, of the session's runtime, or of none if that is gone. Takes the GIL and runs Python code, which may
// run anything; if that fails, its error is set in this thread, and the Status has no words.
Result<std::shared_ptr<Devices>> make_devices(const State& state, const std::shared_ptr<Session>& session,
                                              Runtime& runtime);

// nullptr: a Python error is set.
PyObject* run_on_gpu(GroupObject& group, PreparedCall& call);
// False: likewise. What the call needs of its arrays is kept until its end has been seen, and what it writes is noted now.
bool begin_on_gpu(GroupObject& group, PreparedCall& call, std::function<void(const Status&)> on_end,
                  std::shared_ptr<AsyncWork>* begun);

// _join_gpus(device): joins the ranks on their GPUs, as the first call of arrays there would. nullptr: a Python error is set.
PyObject* join_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// _can_split_gpus(), _split_gpus(child, timeout): see Devices::split().
PyObject* can_split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* split_gpus(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Which way a collective of arrays on GPUs goes, or a message. Does not open a driver.
std::string explain_on_gpu(const GroupObject& group, std::optional<Collective> collective);

}  // namespace pc
