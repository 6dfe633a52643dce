// The calls on arrays of which every rank has a part. Made here where they are plain - equal parts along axis 0, arrays that
// lie as the core wants them - and in pycollective/calls/packing.py where they are not.
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/calls/prepared_call.h"

namespace pc {

// kAllgather, kReduceScatter, kAlltoall, kGather or kScatter: a Prepare (call_row.h).
template <Collective collective>
bool prepare_parts(GroupObject& group, const Given& given, Form form, PreparedCall& call);

// Group._run(collective, x, out, op, root, counts, recv_counts, timeout, fixed_order): one call of the core, as it is. `x` and `out` are
// arrays that lie in one block, or None where this rank has none; counts are in elements. _begin() is the same in the background.
PyObject* run_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* begin_as_it_is(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace pc
