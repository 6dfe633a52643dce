// The arrays of one row in a GPU's memory, laid out as those of the host by which they are filled and verified.
#pragma once

#include <utility>

#include "bench/gpu.h"
#include "bench/host_arrays.h"
#include "gpu/cuda/memory.h"

namespace pc::bench {

class GpuArrays {
 public:
  // `copies` of them, apart from each other: the arrays of one list. Zeros. `gpu` must outlive it.
  static Result<GpuArrays> create(const Gpu& gpu, const ArrayKind& kind, uint64_t copies);
  GpuArrays(GpuArrays&&) noexcept = default;
  GpuArrays& operator=(GpuArrays&&) = delete;
  ~GpuArrays();

  Arrays copy(uint64_t which) const;
  uint64_t copies() const { return copies_; }

  // These wait for the GPU, which must have nothing else to do.
  Status fill(const Asked& asked);  // as HostArrays does
  Result<uint64_t> count_wrong(const Asked& asked);

  void leak() { leaks_ = true; }  // the GPU may still use it, and freeing waits for that

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
