// Selects the method of access to an array's memory by its type.
#include "bindings/arrays/view_builder.h"

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
      return builder.refuse_it("is a masked array, and its mask would be lost: pass x.filled(0) or x.data");
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

}  // namespace pc
