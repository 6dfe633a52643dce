// Profiles of a machine, for `pycollective tune`.
#pragma once

#include "pybind11_forward.h"
#include "state.h"

namespace pc {

void bind_tune(pybind11::module_& m, State* state);

}  // namespace pc
