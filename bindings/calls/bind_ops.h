// pycollective.scaled: an operation with a factor, as a Python object.
#pragma once

#include "base/types.h"
#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_ops(pybind11::module_& m, State* state);

// Returns the reduction in `value` if scaled() made it, else null.
const Reduction* scaled_reduction(const State& state, PyObject* value);

}  // namespace pc
