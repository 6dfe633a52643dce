// Collectives in which every rank has a whole array or none, and other methods of a group. These
// functions may throw; their callers catch.
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// Each is a Prepare (call_row.h).
template <
    Collective
        collective>  // kAllreduce, kScan, kExscan: every rank passes an array and gets one of the same shape
bool prepare_elementwise(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_broadcast(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_reduce(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_barrier(GroupObject& group, const Given& given, Form form, PreparedCall& call);

// Takes its arguments as METH_FASTCALL | METH_KEYWORDS passes them. Returns nullptr with a Python
// error set.
PyObject* resync(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

PyObject* explain(GroupObject& group, PyObject* args, PyObject* kwargs);  // METH_VARARGS | METH_KEYWORDS
// Returns the seconds that `count` allreduce calls on `array` take without Python in between.
// benchmarks/call_overhead.py subtracts them.
PyObject* time_calls(GroupObject& group, PyObject* array, int64_t count);

}  // namespace pc
