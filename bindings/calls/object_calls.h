// The calls on objects. They are written in Python, in pycollective/objects/objects.py; the first
// call imports it.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// These take their arguments as METH_FASTCALL | METH_KEYWORDS passes them. They return nullptr with
// a Python error set.
PyObject* broadcast_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* allgather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* gather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* scatter_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* send_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
