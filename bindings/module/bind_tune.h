// Profiles of a machine, for `pycollective tune`.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_tune(pybind11::module_& m, State* state);

}  // namespace pc
