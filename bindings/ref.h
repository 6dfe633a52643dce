// An owned Python reference.
#pragma once

#include <Python.h>

namespace pc {

// A thread that asks for the GIL while the interpreter ends is unwound by glibc, without the GIL: its references are left
// where they are. py::object would give them back, and crash. Hence this one in whatever may call or wait for Python.
class Ref {
 public:
  explicit Ref(PyObject* owned) : object_(owned) {}
  ~Ref() {
    if (object_ != nullptr && PyGILState_Check() != 0) Py_DECREF(object_);
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

}  // namespace pc
