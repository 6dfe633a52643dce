// The Python class PlannedCall: a call whose arguments have been looked at, to be made again and again.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// Makes PlannedCall and adds it to the module. False: a Python error is set. `state` lives as long as the process.
bool add_planned_call(PyObject* module, State* state);

struct PreparedCall;
// Of one array. A new reference, or nullptr with a Python error set.
PyObject* plan_prepared(GroupObject& group, std::unique_ptr<PreparedCall> prepared);
// Group._plan_lists(calls, x, words): one call per tuple of _run_list()'s arguments, one after the other, for the arrays in
// `x`, which the calls return. `words`: what a CollectiveMismatch says in addition.
PyObject* plan_lists(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
// Group._plan_staged(call, x): `call` is called without arguments; `x` must hold what it holds.
PyObject* plan_staged(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
