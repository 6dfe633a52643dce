// Allocations of other processes' GPU memory that are open here. They stay open, since opening one
// is slow for the driver, until they conflict with another or have not been used for long. Memory
// that its process frees meanwhile remains in use until then.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/types.h"
#include "gpu/cuda/ipc.h"

namespace pc {

// The location of an allocation in its process. Plain data.
struct PeerAllocationId {
  uint64_t begin = 0, nbytes = 0;
  uint64_t id = 0;  // unique in that process for all time
  cuda::HandleBytes handle = {};
};

// Thread-safety: all methods.
class IpcMappings {
 public:
  // `process` is any number that identifies the process. The result stays open while it is
  // referenced.
  Result<std::shared_ptr<const cuda::PeerAllocation>> open(const cuda::Context& context, Rank process,
                                                           const PeerAllocationId& what);
  // closes once it is no longer referenced
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
