// The reduction kernels on arrays of this process, for pycollective/calls/reproducible.py.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_kernels(pybind11::module_& m, State* state);

}  // namespace pc
