// The catalog of algorithms and what can be done with plans without a world: what `pycollective plan` and explain() ask.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

// `state` lives as long as the process.
void bind_plan(pybind11::module_& module, State* state);

}  // namespace pc
