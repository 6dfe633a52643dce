// Memory for arrays that local peers can read in place. pycollective.runtime.heap makes the arrays.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_heap(pybind11::module_& m, State* state);

}  // namespace pc
