// Memory of this rank that other ranks can access, used in place of arrays that they cannot access:
// lists, memory without a handle for other processes, and misaligned arrays. The memory is kept for
// later calls. The block in use has at most twice the size that the largest call needs, and the
// smaller blocks together no more than that.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/request.h"
#include "gpu/cuda/memory.h"
#include "gpu/ipc/ipc_memory.h"

namespace pc {

// Thread-safety: one thread at a time.
class IpcScratch {
 public:
  explicit IpcScratch(cuda::Context context) : context_(std::move(context)) {}
  // Returns `request` with scratch memory in place of each array that other ranks cannot access.
  // Queues copies of the inputs to the scratch memory on `stream`. The stream's context must be
  // current. The result is valid until the next substitute(). Returns an error if no memory can be
  // allocated, or if the driver refuses a copy.
  Result<Request> substitute(const Request& request, IpcMemory& memory, cuda::CUstream stream);
  // Queues copies of the results, which are in the scratch memory of `made`, to the arrays of
  // `request`. The context of `stream` must be current.
  Status give_back(const Request& request, const Request& made, Rank rank, cuda::CUstream stream) const;

 private:
  Result<std::byte*> allocate(std::size_t nbytes);

  const cuda::Context context_;
  std::vector<cuda::DeviceMemory> blocks_;  // sizes are powers of two; only the last block is in use
};

}  // namespace pc
