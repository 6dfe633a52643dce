// The catalog of algorithms and the operations on plans that need no world, for `pycollective plan`
// and explain().
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

// `state` lives as long as the process.
void bind_plan(pybind11::module_& module, State* state);

}  // namespace pc
