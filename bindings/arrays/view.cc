#include "bindings/arrays/view.h"

#include <algorithm>

#include "bindings/state/errors.h"

namespace pc {

std::string shape_text(const int64_t* shape, int ndim) {
  std::string text = "(";
  for (int i = 0; i < ndim; ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (ndim == 1 ? ",)" : ")");
}

bool View::same_dtype(const State& state, const View& other, const Use& use) const {
  if (buffer_.dtype == other.buffer_.dtype && buffer_.layout == other.buffer_.layout) return true;
  return refuse(state, std::string(use.function) + ": " + use.argument + " has dtype " +
                           text_of(buffer_.dtype, buffer_.layout) + ", but x has " +
                           text_of(other.buffer_.dtype, other.buffer_.layout));
}

bool View::matches(const State& state, const View& other, const Use& use) const {
  if (!same_dtype(state, other, use)) return false;
  const auto subject = [&use] { return std::string(use.function) + ": " + use.argument; };
  if (ndim_ != other.ndim_ || !std::equal(shape_, shape_ + ndim_, other.shape_)) {
    return refuse(state, subject() + " has shape " + shape_text(shape_, ndim_) + ", but x has " +
                             shape_text(other.shape_, other.ndim_));
  }
  const std::byte *a = buffer_.data, *b = other.buffer_.data;
  if (a != b && buffer_.nbytes() != 0 && a < b + other.buffer_.nbytes() && b < a + buffer_.nbytes()) {
    return refuse(
        state,
        subject() + " overlaps x in part: pass the same array for in place, or one that does not overlap");
  }
  return true;
}

bool View::fits(const State& state, ReduceOp op, const Use& use) const {
  if (buffer_.dtype != DType::kOpaque && !takes_pairs(op)) [[likely]]
    return true;
  const std::string subject = std::string(use.function) + ": " + use.argument;
  if (buffer_.dtype == DType::kOpaque) {
    return refuse(state, Code::kUnsupported,
                  subject + " has dtype " + text_of(buffer_.dtype, buffer_.layout) +
                      ", which can be moved but not reduced: view it as a dtype that can (" + use.argument +
                      ".view(...)), or pass a copy of one field of a record");
  }
  if (ndim_ > 0 && shape_[ndim_ - 1] == 2) return true;
  return refuse(state, subject + " of shape " + shape_text(shape_, ndim_) + " has no pairs for \"" +
                           std::string(name_of(op)) +
                           "\": its last axis must have length 2, for value and location");
}

bool View::note_write(const State& state) const {
  if (paddle_tensor_ != nullptr) {
    PyObject* none = PyObject_CallOneArg(state.paddle_increment_version, paddle_tensor_);
    Py_XDECREF(none);
    return none != nullptr;
  }
  if (torch_tensor_ == nullptr) return true;
  PyObject* argument = torch_tensor_;
  PyObject* tuple = nullptr;
  if (state.increment_takes_tuple) argument = tuple = PyTuple_Pack(1, torch_tensor_);
  PyObject* result = argument == nullptr ? nullptr : PyObject_CallOneArg(state.increment_version, argument);
  Py_XDECREF(tuple);
  Py_XDECREF(result);
  return result != nullptr;
}

}  // namespace pc
