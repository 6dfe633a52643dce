#include "bindings/arrays/new_array.h"

#include "bindings/arrays/view_builder.h"
#include "bindings/python/ref.h"

namespace pc {

PyObject* shape_tuple(const std::vector<int64_t>& shape) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(shape.size()));
  for (std::size_t i = 0; tuple != nullptr && i < shape.size(); ++i) {
    PyObject* length = PyLong_FromLongLong(shape[i]);
    if (length == nullptr) return Py_DECREF(tuple), nullptr;
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), length);
  }
  return tuple;
}

PyObject* new_array(State& state, PyObject* like, const std::vector<int64_t>& shape) {
  const bool numpy = reinterpret_cast<PyObject*>(Py_TYPE(like)) == state.ndarray;
  bool on_gpu = false;
  if (!numpy) {
    const TypeInfo* info = type_info(state, like);
    on_gpu = info != nullptr && info->access == Access::kCuda;
    if (info == nullptr || (info->access != Access::kTorchExchange && !on_gpu)) return nullptr;
  }
  const Ref lengths(shape_tuple(shape));
  if (!lengths) return nullptr;
  if (on_gpu) {
    const Ref module(PyImport_ImportModule("pycollective.arrays.gpu_arrays"));
    return module ? PyObject_CallMethod(module.get(), "empty", "OO", like, lengths.get()) : nullptr;
  }
  if (!numpy) return PyObject_CallMethod(like, "new_empty", "O", lengths.get());
  const Ref dtype(PyObject_GetAttrString(like, "dtype"));
  return dtype ? PyObject_CallFunctionObjArgs(state.numpy_empty, lengths.get(), dtype.get(), nullptr)
               : nullptr;
}

}  // namespace pc
