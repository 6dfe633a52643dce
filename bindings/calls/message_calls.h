// Messages between two ranks. Made here where both know what is sent; pycollective/calls/staged.py makes the others out of
// find_message() and receive_found().
#pragma once

#include "bindings/state/group_object.h"

namespace pc {

// As METH_FASTCALL | METH_KEYWORDS hands them over. nullptr: a Python error is set.
PyObject* send(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* send_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* sendrecv(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// The same on arrays that lie in one block, with what lists that travel as one must agree about, or 0:
// Group._send(x, peer, tag, timeout, bundle), Group._recv(x, peer, tag, timeout, bundle).
PyObject* send_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Group._find(peer, tag, timeout): waits for a message and returns (source, dtype, shape, token); dtype is empty if the message
// does not say. Until the token is given to Group._receive(x, token, bundle), or goes away, nobody else can receive it.
// Without a bundle (None), x was made for the message; else it must be what was expected.
PyObject* find_message(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* receive_found(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
