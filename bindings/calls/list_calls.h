// Calls on lists of arrays that pycollective/calls/coalesced_lists.py has grouped into blocks.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

struct PreparedCall;
// Takes the eight arguments of _run_list(). Returns false with a Python error set.
bool prepare_list(GroupObject& group, PyObject* const* args, PreparedCall& call);

// Group._run_list(collective, blocks, writes, op, root, bundle, timeout, fixed_order): one in-place
// call of the core. `writes` is true if this rank gets a result. Group._begin_list does the same in
// the background; its last argument is the result of its Work.
PyObject* run_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* begin_list(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
