// The arrays of one row in a GPU's memory, with the layout of the host arrays that fill and verify
// them.
#pragma once

#include <utility>

#include "bench/gpu.h"
#include "bench/host_arrays.h"
#include "gpu/cuda/memory.h"

namespace pc::bench {

class GpuArrays {
 public:
  // Creates `copies` sets of arrays for one call with a list, with gaps between the sets. All
  // arrays are zeros. `gpu` must outlive the object.
  static Result<GpuArrays> create(const Gpu& gpu, const ArrayKind& kind, uint64_t copies);
  GpuArrays(GpuArrays&&) noexcept = default;
  GpuArrays& operator=(GpuArrays&&) = delete;
  ~GpuArrays();

  Arrays copy(uint64_t which) const;
  uint64_t copies() const { return copies_; }

  // These methods wait for the GPU, which must have no other work.
  Status fill(const Asked& asked);  // as HostArrays::fill()
  Result<uint64_t> count_wrong(const Asked& asked);

  // keeps the memory: the GPU may still use it, and freeing it would wait for the GPU
  void leak() { leaks_ = true; }

 private:
  GpuArrays(const Gpu& gpu, HostArrays host, uint64_t copies)
      : gpu_(gpu),
        host_(std::move(host)),
        copies_(copies) {}
  std::size_t stride() const;
  Buffer there(const Buffer& on_host, uint64_t which) const;

  const Gpu& gpu_;
  HostArrays host_;
  uint64_t copies_;
  std::unique_ptr<cuda::DeviceMemory> memory_;
  bool leaks_ = false;
};

}  // namespace pc::bench
