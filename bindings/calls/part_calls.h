// The calls on arrays of which every rank has a part. Made here where they are plain - equal parts along axis 0, arrays that
// lie as the core wants them - and in pycollective/calls/staged.py where they are not.
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// As METH_FASTCALL | METH_KEYWORDS hands them over. nullptr: a Python error is set.
PyObject* allgather(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* allgather_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* reduce_scatter(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* reduce_scatter_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs,
                               PyObject* kwnames);
PyObject* alltoall(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* alltoall_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* gather(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* gather_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* scatter(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* scatter_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Group._run(collective, x, out, op, root, counts, recv_counts, timeout, fixed_order): one call of the core, as it is. `x` and `out` are
// arrays that lie in one block, or None where this rank has none; counts are in elements. _begin() is the same in the background.
PyObject* run_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* begin_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
