// Helpers for C++ functions that Python calls.
#pragma once

#include <Python.h>

#include <exception>

#include "bindings/state/errors.h"

namespace pc {

// The flags of a method that takes arguments by position and by keyword, and its function in the
// form that PyMethodDef needs.
inline constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
inline PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Turns a C++ exception into a Python error, because no exception may pass through the interpreter.
// Not noexcept, because glibc ends a thread by unwinding its stack.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (std::exception& caught) {
    return raise_caught(caught);
  }
}

}  // namespace pc
