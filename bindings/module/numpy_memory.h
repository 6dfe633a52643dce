// Memory of the heap for arrays that NumPy allocates itself.
#pragma once

#include <memory>

#include "bindings/python/pybind11_forward.h"
#include "comm/runtime.h"

namespace pc {

// Returns a handler for PyDataMem_SetHandler(). Arrays made while it is set are in this runtime's
// heap, which lives as long as any of them.
pybind11::object numpy_handler(std::shared_ptr<Runtime> runtime);

// Sets NumPy's handler in the calling context (contextvars) and returns the previous one. None is
// NumPy's default.
pybind11::object set_numpy_handler(const pybind11::object& handler);

}  // namespace pc
