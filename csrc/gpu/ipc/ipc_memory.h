// Access to arrays on this GPU from other ranks of the host: by address in the same process, by a
// handle in other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/types.h"
#include "gpu/ipc/ipc_mappings.h"

namespace pc {

// Plain data, exchanged as bytes by ranks of one version of this library.
struct PeerArray {
  uint64_t address = 0;  // 0: none
  PeerAllocationId allocation = {};
};

// Thread-safety: one thread at a time.
class IpcMemory {
 public:
  // `processes` holds for each rank a number of its process, the same in all groups. It is negative
  // for a rank of this process.
  IpcMemory(cuda::Context context, std::vector<Rank> processes, std::shared_ptr<IpcMappings> mappings);

  // Returns kUnsupported with the reason if the array's memory has no handle. The array must be
  // contiguous.
  Result<PeerArray> export_array(const ConstBuffer& array);
  // returns whether it can be exported and is aligned as kernels require
  bool shows(const ConstBuffer& array);
  // Returns null if there is no array. The result is open until let_go(); the peer must keep the
  // array until this rank has reported that it has finished.
  Result<std::byte*> reach(Rank peer, const PeerArray& array);
  void let_go() { held_.clear(); }
  void close(Rank peer, const PeerArray& array);  // call it when the allocation will not be used again

 private:
  const cuda::Context context_;
  const std::vector<Rank> processes_;
  const bool all_here_;
  std::shared_ptr<IpcMappings> mappings_;
  std::vector<std::shared_ptr<const cuda::PeerAllocation>> held_;
  std::map<uint64_t, cuda::HandleBytes> shown_;  // handles of this process's allocations, by their id
};

}  // namespace pc
