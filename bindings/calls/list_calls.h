// Calls on lists of arrays, of which pycollective/calls/coalesced_lists.py has made blocks.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

struct PreparedCall;
// Of _run_list()'s eight arguments. False: a Python error is set.
bool prepare_list(GroupObject& group, PyObject* const* args, PreparedCall& call);

// Group._run_list(collective, blocks, writes, op, root, bundle, timeout, fixed_order): one call of the core, in place.
// `writes`: this rank gets a result. Group._begin_list: the same in the background, with the result of its Work at the end.
PyObject* run_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* begin_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
