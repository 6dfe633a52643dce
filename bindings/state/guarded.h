// Where Python calls C++.
#pragma once

#include <Python.h>

#include <exception>

#include "bindings/state/errors.h"

namespace pc {

// Flags of a method that takes its arguments by position and by keyword, and its function as PyMethodDef wants it.
inline constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
inline PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// No exception of C++ may pass through the interpreter. Not noexcept: glibc ends a thread by unwinding its stack.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (std::exception& caught) {
    return raise_caught(caught);
  }
}

}  // namespace pc
