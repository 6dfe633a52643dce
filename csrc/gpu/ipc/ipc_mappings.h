// Allocations of other processes' GPU memory that are open here. They stay open, for opening one takes the driver long, until they are
// in the way of another or have not been used for long. What its process frees meanwhile stays in use until then.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/types.h"
#include "gpu/cuda/ipc.h"

namespace pc {

// Where an allocation lies in its process. Plain data.
struct PeerAllocationId {
  uint64_t begin = 0, nbytes = 0;
  uint64_t id = 0;  // no other of that process ever has it
  cuda::HandleBytes handle = {};
};

// Thread-safety: all methods.
class IpcMappings {
 public:
  // `process`: any number that tells processes apart. What is given stays open while somebody has it.
  Result<std::shared_ptr<const cuda::PeerAllocation>> open(const cuda::Context& context, Rank process,
                                                           const PeerAllocationId& what);
  void close(const cuda::Context& context, Rank process, uint64_t id);  // once nobody has it

 private:
  using Key = std::tuple<int, Rank, uint64_t>;  // device, process, PeerAllocationId::id
  struct Open {
    PeerAllocationId what;
    uint64_t used = 0;
    std::shared_ptr<const cuda::PeerAllocation> allocation;
  };
  std::mutex mutex_;  // guards what follows
  std::map<Key, Open> open_;
  uint64_t uses_ = 0;
};

}  // namespace pc
