// Messages between two ranks. This file makes the calls in which both ranks know the array's dtype
// and shape. pycollective/calls/packing.py builds the other calls from find_message() and
// receive_found().
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// Each is a Prepare (call_row.h).
bool prepare_send(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_recv(GroupObject& group, const Given& given, Form form, PreparedCall& call);
bool prepare_sendrecv(GroupObject& group, const Given& given, Form form, PreparedCall& call);

// Messages of contiguous arrays: Group._send(x, peer, tag, timeout, bundle), Group._recv(x, peer,
// tag, timeout, bundle). `bundle` is Request::bundle: both ranks must pass the same number for a
// list that is sent as one message, and 0 for a single array.
PyObject* send_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* recv_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Group._find(peer, tag, timeout): waits for a message and returns (source, dtype, shape, token).
// dtype is empty if the message does not describe its array. The message is reserved until the
// token is passed to Group._receive(x, token, bundle) or destroyed. If bundle is None, x was made
// for the message; otherwise the message must match x.
PyObject* find_message(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* receive_found(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
