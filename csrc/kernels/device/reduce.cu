// The kernels: one per line of list.h, and the copy. What they do is in loops.h, steps.h and element.h; that is C++ which the
// tests run on the CPU. Here is only what needs a GPU.
#include "kernels/device/list.h"
#include "kernels/device/loops.h"

namespace pc::device {

static __device__ __forceinline__ ThisThread this_thread() {
  return {blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x,
          static_cast<uint64_t>(gridDim.x) * blockDim.x};
}

// Two blocks at least on a multiprocessor: 64 registers for a thread.
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
