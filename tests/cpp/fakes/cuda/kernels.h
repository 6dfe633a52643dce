// A FAKE of the CUDA driver: kernels, which are functions that the test provides.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "fakes/cuda/streams.h"

namespace pc::cuda {

inline CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int*, void**, unsigned, int*, void**,
                                  unsigned) {
  BEGIN(cuLibraryLoadData);
  if (code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (world().kernels.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;  // the test has set none
  *library = world().libraries.emplace_back(std::make_unique<CUlib_st>()).get();
  return CUDA_SUCCESS;
}
inline CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  BEGIN(cuLibraryGetKernel);
  const auto found = world().kernels.find(name);
  if (found == world().kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *kernel = found->second.get();
  return CUDA_SUCCESS;
}
inline CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  BEGIN_UNSAFE(cuKernelGetFunction);
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
inline CUresult cuFuncLoad(CUfunction) {
  BEGIN_UNSAFE(cuFuncLoad);
  return CUDA_SUCCESS;
}

inline CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_nbytes,
                               CUstream stream, void** arguments, void**) {
  BEGIN_IN_CONTEXT(cuLaunchKernel);
  if (grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0) return CUDA_ERROR_INVALID_VALUE;
  if (block_x * block_y * block_z > 1024) return CUDA_ERROR_INVALID_VALUE;
  const auto* const kernel = reinterpret_cast<const CUkern_st*>(function);
  struct Value {
    alignas(std::max_align_t) char bytes[512];
  };
  std::vector<Value> values(kernel->argument_sizes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(values[i].bytes, arguments[i], kernel->argument_sizes[i]);
  }
  const FakeLaunch launch{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_nbytes};
  return enqueue(stream, [play = kernel->play, values, launch] {
    std::vector<Value> own = values;  // a graph may be replayed
    std::vector<void*> addresses;
    for (Value& value : own) addresses.push_back(value.bytes);
    play(addresses.data(), &launch);
  });
}

}  // namespace pc::cuda
