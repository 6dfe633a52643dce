// The functions of the core for pycollective.debug.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

// `state` lives as long as the process.
void bind_debug(pybind11::module_& module, State* state);

}  // namespace pc
