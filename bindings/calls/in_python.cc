#include "bindings/calls/in_python.h"

#include <vector>

#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace pc {

PyObject* in_python(const char* module, const char* function, GroupObject& group, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames) {
  const Ref imported(PyImport_ImportModule(module));
  const Ref callable(imported ? PyObject_GetAttrString(imported.get(), function) : nullptr);
  if (!callable) return nullptr;
  const Py_ssize_t given = nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames));
  std::vector<PyObject*> all = {reinterpret_cast<PyObject*>(&group)};
  all.insert(all.end(), args, args + given);
  return PyObject_Vectorcall(callable.get(), all.data(), static_cast<std::size_t>(nargs) + 1, kwnames);
}

PyObject* staged(const char* function, GroupObject& group, PyObject* const* args, Py_ssize_t nargs,
                 PyObject* kwnames) {
  if (!clear_python_error()) return nullptr;
  return in_python("pycollective.calls.staged", function, group, args, nargs, kwnames);
}

}  // namespace pc
