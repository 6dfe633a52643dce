// What pycollective.available() and `pycollective doctor --gpu` ask of the core.
#pragma once

#include <pybind11/pybind11.h>

namespace pc {

void bind_gpu(pybind11::module_& module);

}  // namespace pc
