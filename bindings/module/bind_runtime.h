// Runtime and StoreServer in Python. They are not on the hot path, so they use pybind11.
#pragma once

#include "bindings/python/pybind11_forward.h"
#include "bindings/state/state.h"

namespace pc {

void bind_runtime(pybind11::module_& module, State* state);

}  // namespace pc
