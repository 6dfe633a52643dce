// An owned Python reference.
#pragma once

#include <Python.h>

namespace pc {

// Returns false in a thread that has lost the GIL for good because the interpreter ends.
// PyGILState_Check() alone returns true again late in finalization.
inline bool holds_gil() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() == 0 && PyGILState_Check() != 0;
#else
  return _Py_IsFinalizing() == 0 && PyGILState_Check() != 0;
#endif
}

// If a thread requests the GIL while the interpreter ends, glibc unwinds the thread without the
// GIL. Its references must then be leaked; py::object would release them and crash. Use Ref in all
// code that may call or wait for Python.
class Ref {
 public:
  explicit Ref(PyObject* owned) : object_(owned) {}
  ~Ref() {
    if (object_ != nullptr && holds_gil()) Py_DECREF(object_);
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

}  // namespace pc
