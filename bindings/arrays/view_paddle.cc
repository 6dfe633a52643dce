// Paddle tensors. Paddle is never imported here: a tensor exists only in a process that has
// imported it.
#include "bindings/arrays/view_builder.h"
#include "bindings/state/errors.h"

namespace pc {

// stop_gradient is the negation of torch's requires_grad.
bool ViewBuilder::check_paddle_grad() {
  PyObject* stopped = PyObject_GetAttr(array_, state_.stop_gradient);
  if (stopped == nullptr) return false;
  Py_DECREF(stopped);
  if (stopped == Py_True) return true;
  PyObject* leaf = PyObject_GetAttr(array_, state_.is_leaf);
  if (leaf == nullptr) return false;
  Py_DECREF(leaf);
  if (leaf == Py_True) return true;  // a parameter may be written, as under paddle.no_grad()
  return refuse_it(
      "requires grad (stop_gradient is False) and is the result of another operation, which autograd may "
      "still "
      "need: pass " +
      std::string(use_.argument) + ".detach().clone()");
}

bool ViewBuilder::from_paddle(const dlpack::ExchangeApi* exchange) {
  view_.paddle_tensor_ = array_;
  if (exchange == nullptr) {
    return refuse_it(
        "is a tensor of a Paddle older than 3.3, which does not say where it lies: pass a NumPy array",
        Code::kUnsupported);
  }
  // Checked first: the exchange interface assumes plain memory for every tensor, and crashes
  // otherwise.
  PyObject* dense = PyObject_CallOneArg(state_.paddle_is_dense, array_);
  if (dense == nullptr) return false;
  Py_DECREF(dense);
  if (dense != Py_True) {
    return refuse_it(
        "has no plain memory (sparse, distributed and cleared tensors have none): pass the tensor inside, "
        "such as x.values()");
  }
  if (use_.written && !check_paddle_grad()) return false;
  // Owns an export, because Paddle's contiguous() changes the tensor itself, and a tensor from
  // detach() shares everything with the original.
  dlpack::ManagedTensor* managed = nullptr;
  if (exchange->managed_from_object(array_, &managed) != 0) {
    return refuse_it("cannot be exported by DLPack: " + take_python_error());
  }
  return from_managed(managed);
}

}  // namespace pc
