// Messages between two ranks. Made here where both know what is sent; pycollective/calls/packing.py makes the others out of
// find_message() and receive_found().
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// Each is a Prepare (call_row.h).
bool prepare_send(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_recv(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_sendrecv(GroupObject& group, const Given& given, Form form, PreparedCall& call);

// Messages of arrays that lie in one block, with what lists that travel as one must agree about, or 0:
// Group._send(x, peer, tag, timeout, bundle), Group._recv(x, peer, tag, timeout, bundle).
PyObject* send_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Group._find(peer, tag, timeout): waits for a message and returns (source, dtype, shape, token); dtype is empty if the message
// does not say. Until the token is given to Group._receive(x, token, bundle), or goes away, nobody else can receive it.
// Without a bundle (None), x was made for the message; else it must be what was expected.
PyObject* find_message(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* receive_found(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
