// Arrays of this GPU as other ranks of the host reach them: by their address in the same process, by a handle in others.
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
  uint64_t address = 0;  // 0: there is none
  PeerAllocationId allocation = {};
};

// Thread-safety: one thread at a time.
class IpcMemory {
 public:
  // `processes`: by rank, a number of its process, the same in all groups; negative: it is this one.
  IpcMemory(cuda::Context context, std::vector<Rank> processes, std::shared_ptr<IpcMappings> mappings);

  // kUnsupported: the array's memory has no handle, and why. It must lie in one block.
  Result<PeerArray> export_array(const ConstBuffer& array);
  bool shows(const ConstBuffer& array);  // it can be exported, and its elements lie where kernels want them
  // Null: there is none. Open until let_go(); the rank must keep it until this one has told that it is through.
  Result<std::byte*> reach(Rank peer, const PeerArray& array);
  void let_go() { held_.clear(); }
  void close(Rank peer, const PeerArray& array);  // its allocation is not going to be used again

 private:
  const cuda::Context context_;
  const std::vector<Rank> processes_;
  const bool all_here_;
  std::shared_ptr<IpcMappings> mappings_;
  std::vector<std::shared_ptr<const cuda::PeerAllocation>> held_;
  std::map<uint64_t, cuda::HandleBytes> shown_;  // handles of this process's allocations, by their id
};

}  // namespace pc
