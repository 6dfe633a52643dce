#include "object_calls.h"

#include <vector>

#include "ref.h"

namespace pc {
namespace {

// The function of that name, called with the group in front of the arguments.
PyObject* in_python(const char* name, GroupObject& group, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames) {
  const Ref module(PyImport_ImportModule("pycollective.objects"));
  const Ref function(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
  if (!function) return nullptr;
  const Py_ssize_t given = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  std::vector<PyObject*> all = {reinterpret_cast<PyObject*>(&group)};
  all.insert(all.end(), args, args + given);
  return PyObject_Vectorcall(function.get(), all.data(), static_cast<std::size_t>(nargs) + 1, kwnames);
}

}  // namespace

PyObject* broadcast_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("broadcast_object", group, args, nargs, kwnames);
}

PyObject* allgather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("allgather_object", group, args, nargs, kwnames);
}

PyObject* gather_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("gather_object", group, args, nargs, kwnames);
}

PyObject* scatter_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("scatter_object", group, args, nargs, kwnames);
}

PyObject* send_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("send_object", group, args, nargs, kwnames);
}

PyObject* recv_object(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("recv_object", group, args, nargs, kwnames);
}

}  // namespace pc
