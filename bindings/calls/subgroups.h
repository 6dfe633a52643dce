// Creates groups of some ranks. pycollective/runtime/groups.py determines their members and
// numbers.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// These take their arguments as METH_FASTCALL | METH_KEYWORDS passes them. They return nullptr with
// a Python error set.
PyObject* subgroup(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* split(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
// Group._make(id, world_ranks), Group._reserve_group_ids(count): see Runtime.
PyObject* make_group(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* reserve_group_ids(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* close_group(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
// Group._quit(): see Communicator::quit().
PyObject* quit_group(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
