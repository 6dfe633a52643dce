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

PyObject* staged(GroupObject& group, const Signature& signature, const Given& given) {
  if (!clear_python_error()) return nullptr;
  const State& state = *group.state;
  const Ref module(PyImport_ImportModule("pycollective.calls.packing"));
  const Ref function(module ? PyObject_GetAttrString(module.get(), signature.function) : nullptr);
  const Ref keywords(function ? PyDict_New() : nullptr);
  const Ref position(keywords ? PyTuple_Pack(1, reinterpret_cast<PyObject*>(&group)) : nullptr);
  if (!position) return nullptr;
  for (int i = 0; i < signature.count; ++i) {
    const Name name = signature.names[static_cast<std::size_t>(i)];
    const Ref value(given[name] != nullptr ? Py_NewRef(given[name]) : default_of(state, name));
    if (!value || PyDict_SetItem(keywords.get(), state.names[name], value.get()) != 0) return nullptr;
  }
  return PyObject_Call(function.get(), position.get(), keywords.get());
}

}  // namespace pc
