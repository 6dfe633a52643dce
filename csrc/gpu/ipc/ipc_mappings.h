// Keeps GPU memory of other processes open in this process, because opening an allocation is slow.
// An allocation is closed when it conflicts with a newer one, or when too many are open and it is
// the least recently used. If the owning process frees the allocation earlier, the memory remains
// in use until it is closed here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/types.h"
#include "gpu/cuda/ipc.h"

namespace pc {

// Identifies an allocation of another process. Plain data.
struct PeerAllocationId {
  uint64_t begin = 0, nbytes = 0;
  uint64_t id = 0;  // never reused in that process
  cuda::HandleBytes handle = {};
};

// Thread-safety: all methods.
class IpcMappings {
 public:
  // Opens an allocation, unless it is open. `process` is any number that identifies the process of
  // the allocation. The allocation stays open at least as long as the result is referenced.
  Result<std::shared_ptr<const cuda::PeerAllocation>> open(const cuda::Context& context, Rank process,
                                                           const PeerAllocationId& what);
  // closes the allocation once it is no longer referenced
  void close(const cuda::Context& context, Rank process, uint64_t id);

 private:
  using Key = std::tuple<int, Rank, uint64_t>;  // device, process, PeerAllocationId::id
  struct Open {
    PeerAllocationId what;
    uint64_t used = 0;
    std::shared_ptr<const cuda::PeerAllocation> allocation;
  };
  std::mutex mutex_;  // guards the members below
  std::map<Key, Open> open_;
  uint64_t uses_ = 0;
};

}  // namespace pc
