#include "view.h"

#include <algorithm>

#include "bind_errors.h"
#include "view_builder.h"

namespace pc {

bool View::take(State& state, PyObject* array, const Use& use) {
  ViewBuilder builder(state, array, use, *this);
  if (reinterpret_cast<PyObject*>(Py_TYPE(array)) == state.ndarray) return builder.from_numpy();
  const TypeInfo* info = type_info(state, array);
  if (info == nullptr) return false;
  switch (info->access) {
    case Access::kNumpy: return builder.from_numpy();
    case Access::kTorchExchange: return builder.from_torch_exchange(*info->exchange);
    case Access::kTorchCapsule: return builder.from_torch_capsule();
    case Access::kPaddle: return builder.from_paddle(info->exchange);
    case Access::kBuffer: return builder.from_buffer();
    case Access::kDlpack: return builder.from_dlpack();
    case Access::kCuda: return builder.from_cuda_interface();
    case Access::kMasked:
      return builder.refuse_it("is a masked array, whose mask would be lost: pass x.filled(0) or x.data");
    case Access::kWrapper:
      return builder.refuse_it("is a " + builder.type_name() +
                               ", which wraps other tensors: pass the tensor inside, such as x.to_local()");
    case Access::kImmutable: stageable_ = immutable_ = true; break;
    case Access::kStaged: stageable_ = true; break;
    case Access::kNone: break;
  }
  if (PyIter_Check(array) || PyDictViewSet_Check(array) || PyDictValues_Check(array)) {
    return builder.refuse_it("is a " + builder.type_name() + ", not an array: pass list(x)");
  }
  return builder.refuse_it(
      "is a " + builder.type_name() +
      ", not an array: pass a NumPy array, a torch tensor or anything else that has the buffer "
      "protocol or __dlpack__");
}

bool View::same_dtype(const State& state, const View& other, const Use& use) const {
  if (buffer_.dtype == other.buffer_.dtype && buffer_.layout == other.buffer_.layout) return true;
  return refuse(state, std::string(use.function) + ": " + use.argument + " has dtype " +
                           text_of(buffer_.dtype, buffer_.layout) + ", but x has " +
                           text_of(other.buffer_.dtype, other.buffer_.layout));
}

bool View::matches(const State& state, const View& other, const Use& use) const {
  if (!same_dtype(state, other, use)) return false;
  const auto who = [&use] { return std::string(use.function) + ": " + use.argument; };
  if (ndim_ != other.ndim_ || !std::equal(shape_, shape_ + ndim_, other.shape_)) {
    return refuse(state, who() + " has shape " + shape_text(shape_, ndim_) + ", but x has " +
                             shape_text(other.shape_, other.ndim_));
  }
  const std::byte *a = buffer_.data, *b = other.buffer_.data;
  if (a != b && buffer_.nbytes() != 0 && a < b + other.buffer_.nbytes() && b < a + buffer_.nbytes()) {
    return refuse(
        state, who() + " overlaps x in part: pass the same array for in place, or one that does not overlap");
  }
  return true;
}

bool View::fits(const State& state, ReduceOp op, const Use& use) const {
  if (buffer_.dtype != DType::kOpaque && !takes_pairs(op)) [[likely]]
    return true;
  const std::string who = std::string(use.function) + ": " + use.argument;
  if (buffer_.dtype == DType::kOpaque) {
    return refuse(state, Code::kUnsupported,
                  who + " has dtype " + text_of(buffer_.dtype, buffer_.layout) +
                      ", which can be moved but not reduced: view it as a dtype that can (" + use.argument +
                      ".view(...)), or pass a copy of one field of a record");
  }
  if (ndim_ > 0 && shape_[ndim_ - 1] == 2) return true;
  return refuse(state, who + " of shape " + shape_text(shape_, ndim_) + " has no pairs for \"" +
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
