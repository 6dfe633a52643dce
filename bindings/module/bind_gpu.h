// The functions of the core for pycollective.available() and `pycollective doctor --gpu`.
#pragma once

#include "bindings/python/pybind11_forward.h"

namespace pc {

void bind_gpu(pybind11::module_& module);

}  // namespace pc
