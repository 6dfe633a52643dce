// What pycollective.available() and `pycollective doctor --gpu` ask of the core.
#pragma once

#include "bindings/python/pybind11_forward.h"

namespace pc {

void bind_gpu(pybind11::module_& module);

}  // namespace pc
