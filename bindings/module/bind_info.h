// The functions of the core for pycollective.info().
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

// `state` lives as long as the process.
void bind_info(pybind11::module_& module, State* state);

}  // namespace pc
