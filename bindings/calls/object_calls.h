// The calls on objects: written in Python, in pycollective/objects/objects.py, which is imported by the first of them.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// As METH_FASTCALL | METH_KEYWORDS hands them over. nullptr: a Python error is set.
PyObject* broadcast_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* allgather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* gather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* scatter_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* send_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
