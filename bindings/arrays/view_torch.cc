// torch tensors. Torch is never imported here: a tensor exists only in a process that has imported
// it.
#include "bindings/arrays/view_builder.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

// Keeps the storage of a tensor, which x.set_() in another thread would release.
class StorageHold final : public Hold {
 public:
  explicit StorageHold(PyObject* storage) : storage_(storage) {}
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(storage_.get());
    return 0;
  }

 private:
  const Ref storage_;
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
  if (leaf == Py_True) return true;  // a parameter may be written, as under torch.no_grad()
  return refuse_it(
      "requires grad and is the result of another operation, which autograd may still need: pass " +
      std::string(use_.argument) + ".detach().clone()");
}

// Refuses a tensor with a lazy conjugate or negative bit, because the exchange interface exports
// its memory without applying the bit.
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
  // Neither of the next two calls releases the GIL, so the storage and the address belong together.
  PyObject* storage = use_.held ? PyObject_CallOneArg(state_.untyped_storage, array_) : nullptr;
  if (storage != nullptr) view_.hold_ = std::make_unique<StorageHold>(storage);
  dlpack::Tensor tensor;
  if ((use_.held && storage == nullptr) || exchange.tensor_from_object(array_, &tensor) != 0) {
    return refuse_it(
        "has no plain memory (sparse, quantized, nested, meta and functional tensors have none): " +
        take_python_error());
  }
  if (tensor.device.type == dlpack::kCuda) {
    if (!take_stream(exchange, tensor.device.index)) return false;
    // Holds the storage, because the GPU uses the memory after the call has returned.
    if (storage == nullptr) storage = PyObject_CallOneArg(state_.untyped_storage, array_);
    if (storage == nullptr) return false;
    if (view_.hold_ == nullptr) view_.hold_ = std::make_unique<StorageHold>(storage);
  }
  return fill(tensor) && check_torch_flags(tensor);  // in this order: check_torch_flags() releases the GIL
}

bool ViewBuilder::from_torch_capsule() {
  view_.torch_tensor_ = array_;
  if (use_.written && !check_torch_grad()) return false;
  PyObject* detached =
      PyObject_CallMethod(array_, "detach", nullptr);  // __dlpack__ refuses tensors that require grad
  if (detached == nullptr) return false;
  bool fine = from_capsule(detached);
  Py_DECREF(detached);
  if (!fine) return false;
  dlpack::Tensor lazy{};  // __dlpack__ refuses conjugated tensors, but not negated ones
  lazy.dtype.code = dlpack::kFloat;
  return check_torch_flags(lazy);
}

}  // namespace pc
