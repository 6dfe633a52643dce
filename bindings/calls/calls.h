// The calls on a group: arguments -> views -> Communicator -> result. They may throw; who binds them catches.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// As METH_FASTCALL | METH_KEYWORDS hands them over. nullptr: a Python error is set.
PyObject* allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* scan(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* exscan(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* scan_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* exscan_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* broadcast(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* reduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* barrier(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// The same, without waiting: they return a Work (bind_work.h).
PyObject* allreduce_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* broadcast_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* reduce_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* barrier_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// The same as allreduce, for later: it returns a PlannedCall (planned_call.h).
PyObject* plan_allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

PyObject* resync(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

PyObject* explain(GroupObject& group, PyObject* args, PyObject* kwargs);  // METH_VARARGS | METH_KEYWORDS
// Seconds that `count` sums of `array` take without Python in between: what benchmarks/call_overhead.py subtracts.
PyObject* time_calls(GroupObject& group, PyObject* array, int64_t count);

}  // namespace pc
