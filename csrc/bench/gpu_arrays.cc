#include "bench/gpu_arrays.h"

#include <algorithm>
#include <utility>

#include "base/round_up.h"
#include "gpu/cuda/copy.h"

namespace pc::bench {

Result<GpuArrays> GpuArrays::create(const Gpu& gpu, ArrayMemory& host, uint64_t copies) {
  GpuArrays made(gpu, host, copies);
  const Buffer in = host.arrays().in, out = host.arrays().out;
  std::byte* const in_end = in.data + in.nbytes();
  std::byte* const out_end = out.data + out.nbytes();
  made.may_go();
  if (in.data < out_end && out.data < in_end) {
    PC_TRY(made.add_region(std::min(in.data, out.data), std::max(in_end, out_end)));
  } else {
    PC_TRY(made.add_region(in.data, in_end));
    PC_TRY(made.add_region(out.data, out_end));
  }
  made.idle_ = false;
  return made;
}

GpuArrays::~GpuArrays() {
  if (!idle_) (void)regions_.release();
}

Status GpuArrays::add_region(std::byte* begin, std::byte* end) {
  constexpr std::size_t kAlignment = 256;  // as the driver aligns memory, and one more between two arrays
  const std::size_t nbytes = static_cast<std::size_t>(end - begin);
  const std::size_t stride = round_up(nbytes, kAlignment) + kAlignment;
  PC_ASSIGN_OR_RETURN(cuda::DeviceMemory memory,
                      cuda::DeviceMemory::allocate(gpu_.context(), stride * copies_));
  regions_->push_back({begin, nbytes, stride, std::move(memory)});
  return Status::ok();
}

Buffer GpuArrays::there(const Buffer& on_host, uint64_t which) const {
  const auto found = std::find_if(regions_->begin(), regions_->end(), [&](const Region& region) {
    return on_host.data >= region.host && on_host.data + on_host.nbytes() <= region.host + region.nbytes;
  });
  const std::size_t offset =
      static_cast<std::size_t>(on_host.data - found->host) + found->stride * static_cast<std::size_t>(which);
  Buffer result = on_host;
  result.data = reinterpret_cast<std::byte*>(found->memory.at() + offset);
  result.device = gpu_.device();
  return result;
}

Arrays GpuArrays::copy(uint64_t which) const {
  return {there(host_.arrays().in, which), there(host_.arrays().out, which)};
}

Status GpuArrays::fill(Communicator& group, const Asked& asked) {
  host_.fill(asked);
  for (const Region& region : *regions_) {
    for (uint64_t which = 0; which < copies_; ++which)
      PC_TRY(cuda::copy_to_device(gpu_.driver_of(), region.memory.at() + which * region.stride,
                                  {region.host, region.nbytes}, gpu_.stream()));
  }
  return gpu_.drain(group);
}

Status GpuArrays::clear(Communicator& group) {
  for (const Region& region : *regions_)
    PC_TRY(cuda::fill_bytes(gpu_.driver_of(), region.memory.at(), 0, region.memory.nbytes(), gpu_.stream()));
  return gpu_.drain(group);
}

Result<uint64_t> GpuArrays::count_wrong(Communicator& group, const Asked& asked) {
  uint64_t wrong = 0;
  const Buffer out = host_.arrays().out;
  for (uint64_t which = 0; which < copies_; ++which) {
    const cuda::CUdeviceptr from = reinterpret_cast<cuda::CUdeviceptr>(there(out, which).data);
    PC_TRY(cuda::copy_to_host(gpu_.driver_of(), {out.data, out.nbytes()}, from, gpu_.stream()));
    PC_TRY(gpu_.drain(group));
    wrong += host_.count_wrong(asked);
  }
  return wrong;
}

}  // namespace pc::bench
