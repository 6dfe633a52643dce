// Where Python calls C++.
#pragma once

#include <pybind11/pybind11.h>

#include <new>

namespace pc {

// No exception of C++ may pass through the interpreter. Not noexcept: glibc ends a thread by unwinding its stack.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (pybind11::error_already_set& e) {
    e.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

}  // namespace pc
