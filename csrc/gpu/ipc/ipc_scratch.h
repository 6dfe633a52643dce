// Memory of this rank that others reach, in place of arrays that they do not: lists, memory without a handle for other processes,
// and elements that are not aligned. It is kept for the next call: twice what the largest needs, at most, and as much again of smaller ones.
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
  // The same call of arrays that others reach. Copies of what it reads are queued on `stream`, whose context must be current.
  // Valid until the next one. Errors: there is no memory for it.
  Result<Request> substitute(const Request& request, IpcMemory& memory, cuda::CUstream stream);
  // The results, back to where they belong, if they are here: likewise.
  Status give_back(const Request& request, const Request& made, Rank rank, cuda::CUstream stream) const;

 private:
  Result<std::byte*> allocate(std::size_t nbytes);

  const cuda::Context context_;
  std::vector<cuda::DeviceMemory> blocks_;  // of powers of two; the last is used
};

}  // namespace pc
