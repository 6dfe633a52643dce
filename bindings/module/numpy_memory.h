// Memory of the heap for the arrays that NumPy makes itself.
#pragma once

#include <memory>

#include "bindings/python/pybind11_forward.h"
#include "comm/runtime.h"

namespace pc {

// What PyDataMem_SetHandler() takes: arrays made while it is set lie in this runtime's heap, which lives as long as any of them.
pybind11::object numpy_handler(std::shared_ptr<Runtime> runtime);

// NumPy's, of the calling context (contextvars); returns the one before. None: the default.
pybind11::object set_numpy_handler(const pybind11::object& handler);

}  // namespace pc
