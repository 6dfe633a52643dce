// The kernels: one for each entry of list.h, and the copy. The code is in loops.h, steps.h and
// element.h, which is C++ that the tests run on the CPU. This file has only what needs a GPU.
#include "kernels/device/list.h"
#include "kernels/device/loops.h"

namespace pc::device {

static __device__ __forceinline__ ThisThread this_thread() {
  return {blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x,
          static_cast<uint64_t>(gridDim.x) * blockDim.x};
}

// At least two blocks fit on a multiprocessor, so each thread has at most 64 registers.
#define PC_KERNEL(name, ...)                                   \
  extern "C" __global__ void __launch_bounds__(kThreads, 2)    \
      pc_##name(const __grid_constant__ ReduceArguments how) { \
    reduce<__VA_ARGS__>(how, this_thread());                   \
  }
PC_ALL_REDUCE_KERNELS

extern "C" __global__ void __launch_bounds__(kThreads, 2) pc_copy(const __grid_constant__ CopyArguments how) {
  copy(how, this_thread());
}

}  // namespace pc::device
