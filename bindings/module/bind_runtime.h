// Runtime and StoreServer in Python: not on the hot path, so pybind11 does the work.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_runtime(pybind11::module_& module, State* state);

}  // namespace pc
