// Makes arrays on this GPU accessible to other ranks of the host: by address to ranks of the same
// process, by a handle to ranks of other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/types.h"
#include "gpu/ipc/ipc_mappings.h"

namespace pc {

// The location of an array. Plain data, exchanged as bytes by ranks of one version of this library.
struct PeerArray {
  uint64_t address = 0;  // in the process that exports the array; 0: there is no array
  PeerAllocationId allocation = {};
};

// Thread-safety: one thread at a time.
class IpcMemory {
 public:
  // `processes` has for each rank a number that identifies its process, or a negative number if the
  // rank is in this process. All groups use the same numbers.
  IpcMemory(cuda::Context context, std::vector<Rank> processes, std::shared_ptr<IpcMappings> mappings);

  // Returns the location of an array of this rank. Returns kUnsupported with the reason if the
  // array's memory has no handle. The array must be contiguous.
  Result<PeerArray> export_array(const ConstBuffer& array);
  // returns true if the array can be exported, and is contiguous and aligned as kernels require
  bool shows(const ConstBuffer& array);
  // Opens an array of `peer`, and returns its address in this process, or null if there is no
  // array. The array stays open until let_go(). The peer must keep it until this rank has reported
  // that it has finished.
  Result<std::byte*> reach(Rank peer, const PeerArray& array);
  void let_go() { held_.clear(); }
  // call it when the array's allocation will not be used again
  void close(Rank peer, const PeerArray& array);

 private:
  const cuda::Context context_;
  const std::vector<Rank> processes_;
  const bool all_here_;
  std::shared_ptr<IpcMappings> mappings_;
  std::vector<std::shared_ptr<const cuda::PeerAllocation>> held_;
  std::map<uint64_t, cuda::HandleBytes> shown_;  // handles of this process's allocations, by their id
};

}  // namespace pc
