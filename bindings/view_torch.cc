// torch tensors. Torch is never imported here: a tensor can only come from a process that has done so.
#include <pybind11/pybind11.h>

#include "bind_errors.h"
#include "view_builder.h"

namespace py = pybind11;

namespace pc {
namespace {

// A second tensor on the same storage: x.set_() in another thread gives x a new one, and the old one stays.
class TensorHold final : public Hold {
 public:
  explicit TensorHold(PyObject* alias) : alias_(alias) {}
  ~TensorHold() override { Py_DECREF(alias_); }
  TensorHold(const TensorHold&) = delete;
  TensorHold& operator=(const TensorHold&) = delete;

 private:
  PyObject* alias_;
};

}  // namespace

bool ViewBuilder::check_torch_grad() {
  PyObject* requires_grad = PyObject_GetAttr(array_, state_.requires_grad);
  if (requires_grad == nullptr) return false;
  Py_DECREF(requires_grad);
  if (requires_grad != Py_True) return true;
  PyObject* leaf = PyObject_GetAttr(array_, state_.is_leaf);
  if (leaf == nullptr) return false;
  Py_DECREF(leaf);
  if (leaf == Py_True) return true;  // a parameter: written as under torch.no_grad()
  return refuse_it(
      "requires grad and is the result of another operation, which autograd may still need: pass " +
      std::string(use_.argument) + ".detach().clone()");
}

// The exchange interface hands out memory that means something else while one of these lazy bits is set.
bool ViewBuilder::check_torch_flags(const dlpack::Tensor& t) {
  if (t.dtype.code != dlpack::kFloat && t.dtype.code != dlpack::kComplex) return true;
  for (PyObject* method : {t.dtype.code == dlpack::kComplex ? state_.is_conj : nullptr, state_.is_neg}) {
    if (method == nullptr) continue;
    PyObject* set = PyObject_CallOneArg(method, array_);
    if (set == nullptr) return false;
    Py_DECREF(set);
    if (set != Py_False) {
      return refuse_it("is a lazily conjugated or negated view: pass " + std::string(use_.argument) +
                       ".resolve_conj().resolve_neg()");
    }
  }
  return true;
}

bool ViewBuilder::from_torch_exchange(const dlpack::ExchangeApi& exchange) {
  view_.torch_tensor_ = array_;
  if (use_.written && !check_torch_grad()) return false;
  PyObject* source = array_;
  if (use_.held) {
    source = PyObject_CallOneArg(state_.detach, array_);
    if (source == nullptr) return false;
    view_.hold_ = std::make_unique<TensorHold>(source);
  }
  dlpack::Tensor tensor;
  if (exchange.tensor_from_object(source, &tensor) != 0) {
    return refuse_it(
        "has no plain memory (sparse, quantized, nested, meta and functional tensors have none): " +
        take_python_error());
  }
  return check_torch_flags(tensor) && fill(tensor);
}

bool ViewBuilder::from_torch_capsule() {
  view_.torch_tensor_ = array_;
  if (use_.written && !check_torch_grad()) return false;
  PyObject* detached =
      PyObject_CallMethod(array_, "detach", nullptr);  // __dlpack__ refuses what requires grad
  if (detached == nullptr) return false;
  bool fine = from_capsule(detached);
  Py_DECREF(detached);
  if (!fine) return false;
  dlpack::Tensor lazy{};  // __dlpack__ refuses conjugated tensors, not negated ones
  lazy.dtype.code = dlpack::kFloat;
  return check_torch_flags(lazy);
}

}  // namespace pc
