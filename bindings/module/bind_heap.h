// Memory of arrays that local peers read where they lie: what pycollective.runtime.heap makes arrays of.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_heap(pybind11::module_& m, State* state);

}  // namespace pc
