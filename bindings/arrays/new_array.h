// New arrays for results, with the library and dtype of an argument.
#pragma once

#include <vector>

#include "bindings/state/state.h"

namespace pc {

// Returns a new reference to a tuple, or null with a Python error set.
PyObject* shape_tuple(const std::vector<int64_t>& shape);

// Returns a new reference to an array like `like` with the given shape and unspecified contents.
// Returns null without a Python error if only pycollective.calls.packing can make such an array.
PyObject* new_array(State& state, PyObject* like, const std::vector<int64_t>& shape);

}  // namespace pc
