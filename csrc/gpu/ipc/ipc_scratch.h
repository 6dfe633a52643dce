// Memory of this rank that other ranks can access, used in place of arrays that they cannot access:
// lists, memory without a handle for other processes, and misaligned elements. It is kept for the
// next call: at most twice the need of the largest call, and as much again in smaller blocks.
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
  // Returns the same call with arrays that other ranks can access. Copies of its inputs are queued
  // on `stream`. Its context must be current. The result is valid until the next substitute(). An
  // error means that no memory could be allocated.
  Result<Request> substitute(const Request& request, IpcMemory& memory, cuda::CUstream stream);
  // Queues copies of the results in this scratch memory to the arrays of `request`, on `stream`.
  // Its context must be current.
  Status give_back(const Request& request, const Request& made, Rank rank, cuda::CUstream stream) const;

 private:
  Result<std::byte*> allocate(std::size_t nbytes);

  const cuda::Context context_;
  std::vector<cuda::DeviceMemory> blocks_;  // sizes are powers of two; the last block is in use
};

}  // namespace pc
