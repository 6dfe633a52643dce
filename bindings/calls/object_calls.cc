#include "bindings/calls/object_calls.h"

#include "bindings/calls/in_python.h"

namespace pc {
namespace {
constexpr const char* kModule = "pycollective.objects.objects";
}

PyObject* broadcast_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python(kModule, "broadcast_object", group, args, nargs, kwnames);
}

PyObject* allgather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python(kModule, "allgather_object", group, args, nargs, kwnames);
}

PyObject* gather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python(kModule, "gather_object", group, args, nargs, kwnames);
}

PyObject* scatter_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python(kModule, "scatter_object", group, args, nargs, kwnames);
}

PyObject* send_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python(kModule, "send_object", group, args, nargs, kwnames);
}

PyObject* recv_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python(kModule, "recv_object", group, args, nargs, kwnames);
}

}  // namespace pc
