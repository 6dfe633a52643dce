// Determines, once for each array type, how to access the memory of its arrays.
#include <pybind11/pybind11.h>

#include "bindings/arrays/view_builder.h"
#include "bindings/state/errors.h"

namespace py = pybind11;

namespace pc {
namespace {

constexpr std::size_t kMostTypes = 256;  // bounds the cache when a program makes types in a loop

// Returns the attribute of a module if that module is already imported, else null. Never imports.
py::object already_imported(const char* module, const char* attribute) {
  const py::dict modules = py::reinterpret_borrow<py::dict>(PyImport_GetModuleDict());
  if (!modules.contains(module)) return py::object();
  return py::getattr(modules[module], attribute, py::object());
}

bool is_subtype(PyTypeObject* type, const py::object& base) {
  return base && PyType_Check(base.ptr()) &&
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base.ptr())) != 0;
}

// Returns true if `function`, torch._C._increment_version, accepts a tuple and increments the
// tensor's version. The function takes half the time of torch.autograd.graph.increment_version, but
// its argument differs between torch versions.
bool bumps(const py::object& function, const py::object& tensor) {
  try {
    const py::object before = tensor.attr("_version");
    function(py::make_tuple(tensor));
    return !py::object(tensor.attr("_version")).equal(before);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_Exception)) throw;
    return false;
  }
}

void learn_torch(State& state) {
  if (state.increment_version != nullptr) return;
  // Already imported, since a tensor type was encountered
  const py::module_ torch = py::module_::import("torch");
  const py::object tensor_type = torch.attr("Tensor");
  state.is_conj = py::object(tensor_type.attr("is_conj")).release().ptr();
  state.is_neg = py::object(tensor_type.attr("is_neg")).release().ptr();
  state.untyped_storage = py::object(tensor_type.attr("untyped_storage")).release().ptr();
  py::object fast = py::getattr(torch.attr("_C"), "_increment_version", py::object());
  if (fast && bumps(fast, torch.attr("empty")(0, py::arg("device") = "cpu"))) {
    state.increment_takes_tuple = true;
    state.increment_version = fast.release().ptr();
  } else {
    state.increment_version =
        py::object(torch.attr("autograd").attr("graph").attr("increment_version")).release().ptr();
  }
}

const dlpack::ExchangeApi* exchange_of(py::handle type) {
  const py::object capsule = py::getattr(type, "__dlpack_c_exchange_api__", py::object());
  if (!capsule || PyCapsule_IsValid(capsule.ptr(), dlpack::kExchangeCapsule) == 0) return nullptr;
  auto* api =
      static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kExchangeCapsule));
  while (api != nullptr && api->version.major > dlpack::kMajorVersion) api = api->previous;
  if (api == nullptr || api->version.major != dlpack::kMajorVersion) return nullptr;
  return api->tensor_from_object == nullptr ? nullptr : api;
}

TypeInfo paddle_info(State& state, py::handle type, const py::object& tensor_type) {
  if (state.paddle_is_dense == nullptr) {
    state.paddle_is_dense = py::object(tensor_type.attr("is_dense")).release().ptr();
    state.paddle_increment_version = py::object(tensor_type.attr("_bump_inplace_version")).release().ptr();
  }
  const dlpack::ExchangeApi* exchange = exchange_of(type);
  return {Access::kPaddle,
          exchange != nullptr && exchange->managed_from_object != nullptr ? exchange : nullptr};
}

TypeInfo torch_info(State& state, py::handle type, const py::object& tensor_type) {
  learn_torch(state);
  // Subclasses with their own dispatch have no memory of their own.
  const py::object own = py::getattr(type, "__torch_dispatch__", py::none());
  if (!own.equal(py::getattr(tensor_type, "__torch_dispatch__", py::none())))
    return {Access::kWrapper, nullptr};
  const dlpack::ExchangeApi* exchange = exchange_of(type);
  return {exchange != nullptr ? Access::kTorchExchange : Access::kTorchCapsule, exchange};
}

bool is_jax_array(PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return is_subtype(type, already_imported("jax", "Array")) || name.ends_with("jaxlib._jax.ArrayImpl") ||
         name.ends_with("jaxlib.xla_extension.ArrayImpl");  // before JAX 0.6
}

// Returns true for numbers, and for containers of numbers or arrays.
bool is_staged(PyTypeObject* type) {
  for (PyTypeObject* base :
       {&PyList_Type, &PyTuple_Type, &PyDict_Type, &PyLong_Type, &PyFloat_Type, &PyComplex_Type}) {
    if (PyType_IsSubtype(type, base) != 0) return true;
  }
  return is_subtype(type, already_imported("numpy", "generic"));
}

TypeInfo classify(State& state, PyObject* array) {
  PyTypeObject* type = Py_TYPE(array);
  if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0) {
    return {is_subtype(type, already_imported("numpy.ma", "MaskedArray")) ? Access::kMasked : Access::kNumpy,
            nullptr};
  }
  if (is_staged(type)) return {Access::kStaged, nullptr};
  if (is_jax_array(type)) return {Access::kImmutable, nullptr};
  const py::object tensor_type = already_imported("torch", "Tensor");
  if (is_subtype(type, tensor_type)) return torch_info(state, reinterpret_cast<PyObject*>(type), tensor_type);
  // Requires paddle.base.core too, because the program may have its own module named "paddle".
  const py::object paddle_type =
      already_imported("paddle.base", "core") ? already_imported("paddle", "Tensor") : py::object();
  if (is_subtype(type, paddle_type))
    return paddle_info(state, reinterpret_cast<PyObject*>(type), paddle_type);
  // Checked before the buffer protocol, because CuPy arrays have that protocol on every machine,
  // but it works only with host-readable GPU memory.
  if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "__cuda_array_interface__") != 0)
    return {Access::kCuda, nullptr};
  if (PyObject_CheckBuffer(array) != 0) return {Access::kBuffer, nullptr};
  if (has_dlpack(array)) return {Access::kDlpack, nullptr};
  return {};
}

}  // namespace

bool has_dlpack(PyObject* array) {
  PyObject* method = PyObject_GetAttrString(array, "__dlpack__");
  Py_XDECREF(method);
  if (method == nullptr && !clear_python_error()) throw py::error_already_set();
  return method != nullptr;
}

const TypeInfo* type_info(State& state, PyObject* array) {
  PyTypeObject* type = Py_TYPE(array);
  if (const auto known = state.types.find(type); known != state.types.end()) return &known->second;
  try {
    const TypeInfo info = classify(state, array);
    if (state.types.size() >= kMostTypes) {
      std::unordered_map<PyTypeObject*, TypeInfo> old;
      old.swap(state.types);
      for (const auto& [held, unused] : old) Py_DECREF(held);
    }
    Py_INCREF(type);
    return &state.types.emplace(type, info).first->second;
  } catch (py::error_already_set& e) {
    e.restore();
    return nullptr;
  }
}

}  // namespace pc
