// The calls on arrays of which every rank has a part. Equal parts along axis 0 of contiguous arrays
// are handled here, all others in pycollective/calls/packing.py.
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// A Prepare (call_row.h) for kAllgather, kReduceScatter, kAlltoall, kGather and kScatter.
template <Collective collective>
bool prepare_parts(GroupObject& group, const Given& given, Form form, PreparedCall& call);

// Group._run(collective, x, out, op, root, counts, recv_counts, timeout, fixed_order): one call of
// the core without packing. `x` and `out` are contiguous arrays, or None where this rank has none;
// counts are in elements. _begin() does the same in the background.
PyObject* run_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* begin_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
