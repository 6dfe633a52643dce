#include "bench/gpu_arrays.h"

#include "base/round_up.h"
#include "gpu/cuda/copy.h"

namespace pc::bench {

Result<GpuArrays> GpuArrays::create(const Gpu& gpu, const ArrayKind& kind, uint64_t copies) {
  PC_ASSIGN_OR_RETURN(HostArrays host, HostArrays::create(kind));
  GpuArrays made(gpu, std::move(host), copies);
  PC_ASSIGN_OR_RETURN(cuda::DeviceMemory memory,
                      cuda::DeviceMemory::allocate(gpu.context(), made.stride() * copies));
  made.memory_ = std::make_unique<cuda::DeviceMemory>(std::move(memory));
  made.leaks_ = true;
  PC_TRY(cuda::fill_bytes(gpu.driver_of(), made.memory_->at(), 0, made.memory_->nbytes(), gpu.stream()));
  PC_TRY(gpu.drain());
  made.leaks_ = false;
  return made;
}

GpuArrays::~GpuArrays() {
  if (leaks_) (void)memory_.release();
}

// Returns the distance between two sets of arrays: the size of a set, rounded up as the driver
// aligns memory, and a gap.
std::size_t GpuArrays::stride() const {
  constexpr std::size_t kAlignment = 256;
  return round_up(host_.memory().nbytes(), kAlignment) + kAlignment;
}

Buffer GpuArrays::there(const Buffer& on_host, uint64_t which) const {
  Buffer result = on_host;
  result.data =
      reinterpret_cast<std::byte*>(memory_->at()) + which * stride() + (on_host.data - host_.memory().data);
  result.device = gpu_.device();
  return result;
}

Arrays GpuArrays::copy(uint64_t which) const {
  return {there(host_.arrays().in, which), there(host_.arrays().out, which)};
}

Status GpuArrays::fill(const Asked& asked) {
  host_.fill(asked);
  const Buffer all = host_.memory();
  for (uint64_t which = 0; which < copies_; ++which)
    PC_TRY(cuda::copy_to_device(gpu_.driver_of(), memory_->at() + which * stride(), {all.data, all.nbytes()},
                                gpu_.stream()));
  return gpu_.drain();
}

Result<uint64_t> GpuArrays::count_wrong(const Asked& asked) {
  uint64_t wrong = 0;
  const Buffer out = host_.arrays().out;
  for (uint64_t which = 0; which < copies_; ++which) {
    const cuda::CUdeviceptr from = reinterpret_cast<cuda::CUdeviceptr>(there(out, which).data);
    PC_TRY(cuda::copy_to_host(gpu_.driver_of(), {out.data, out.nbytes()}, from, gpu_.stream()));
    PC_TRY(gpu_.drain());
    wrong += host_.count_wrong(asked);
  }
  return wrong;
}

}  // namespace pc::bench
