// Arrays for results, of the library and dtype of an argument.
#pragma once

#include <vector>

#include "bindings/state/state.h"

namespace pc {

// A new reference to a tuple, or null with a Python error set.
PyObject* shape_tuple(const std::vector<int64_t>& shape);

// A new reference to an array like `like` but of that shape, contents unspecified. Null without a Python error: only
// pycollective.calls.packing knows how to make one.
PyObject* new_array(State& state, PyObject* like, const std::vector<int64_t>& shape);

}  // namespace pc
