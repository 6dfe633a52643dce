// The Python class PlannedCall: a call with arguments that have been checked once. It can be
// repeated.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// Creates PlannedCall and adds it to the module. `state` lives as long as the process. Returns
// false with a Python error set.
bool add_planned_call(PyObject* module, State* state);

struct PreparedCall;
// Plans a call on one array. Returns a new reference, or nullptr with a Python error set.
PyObject* plan_prepared(GroupObject& group, std::unique_ptr<PreparedCall> prepared);
// Group._plan_lists(calls, x, words): runs one call per tuple of _run_list()'s arguments, one after
// the other, on the arrays in `x`, and returns `x`. `words` is appended to the message of a
// CollectiveMismatch.
PyObject* plan_lists(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
// Group._plan_staged(call, x): calls `call` without arguments. `x` must still hold the objects that
// it holds now.
PyObject* plan_staged(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
