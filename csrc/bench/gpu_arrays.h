// The arrays of one row in a GPU's memory, laid out as those of the host by which they are filled and verified.
#pragma once

#include <memory>
#include <vector>

#include "bench/gpu.h"
#include "bench/memory.h"
#include "gpu/cuda/memory.h"

namespace pc::bench {

class GpuArrays {
 public:
  // `copies` of them, apart from each other: the arrays of one list. `gpu` and `host` must outlive it.
  static Result<GpuArrays> create(const Gpu& gpu, ArrayMemory& host, uint64_t copies);
  GpuArrays(GpuArrays&&) noexcept = default;
  GpuArrays& operator=(GpuArrays&&) = delete;
  // What the GPU may still use is leaked: freeing waits for it.
  ~GpuArrays();

  Arrays copy(uint64_t which) const;
  uint64_t copies() const { return copies_; }

  // These wait for the GPU, which must have nothing else to do.
  Status fill(Communicator& group, const Asked& asked);  // as ArrayMemory does
  Status clear(Communicator& group);
  Result<uint64_t> count_wrong(Communicator& group, const Asked& asked);

  void may_go() { idle_ = true; }  // nothing is queued that uses it

 private:
  struct Region {  // arrays that overlap on the host are one
    std::byte* host;
    std::size_t nbytes, stride;
    cuda::DeviceMemory memory;
  };
  GpuArrays(const Gpu& gpu, ArrayMemory& host, uint64_t copies) : gpu_(gpu), host_(host), copies_(copies) {}
  Status add_region(std::byte* begin, std::byte* end);
  Buffer there(const Buffer& on_host, uint64_t which) const;

  const Gpu& gpu_;
  ArrayMemory& host_;
  uint64_t copies_;
  std::unique_ptr<std::vector<Region>> regions_ = std::make_unique<std::vector<Region>>();
  bool idle_ = false;
};

}  // namespace pc::bench
