// Arrays of this GPU as other ranks of the host reach them: by their address in the same process, by a handle in others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/types.h"
#include "cuda/ipc.h"

namespace pc {

// Plain data, exchanged as bytes by ranks of one version of this library.
struct PeerArray {
  uint64_t address = 0;  // 0: there is none
  uint64_t id = 0;       // of the allocation, in its process
  cuda::MemoryHandle handle = {};
};

// Others' allocations stay open, for opening one takes the driver long. An allocation that its rank has freed since is closed when
// it comes to one at the same address, or to many others; its memory is in use until then.
// Thread-safety: one thread at a time.
class PeerMemory {
 public:
  // `is_here`: by rank, whether it is in this process.
  PeerMemory(cuda::Context context, std::vector<bool> is_here);

  // kUnsupported: the array's memory has no handle, and why.
  Result<PeerArray> export_array(const ConstBuffer& array) const;
  // Null: there is none. The rank must keep it until this rank has told that it is through.
  Result<std::byte*> reach(Rank peer, const PeerArray& array);
  void close_all() { open_.clear(); }

 private:
  struct Open {
    uint64_t begin = 0, used = 0;  // where it begins in the peer's process; when it was used last
    cuda::HandleBytes handle = {};
    std::shared_ptr<const cuda::PeerAllocation> allocation;
  };
  void close_what_it_replaces(Rank peer, uint64_t id, const Open& newer);
  void close_what_is_old();

  const cuda::Context context_;
  const std::vector<bool> is_here_;
  const bool all_here_;
  std::map<std::pair<Rank, uint64_t>, Open> open_;  // by PeerArray::id
  uint64_t uses_ = 0;
};

}  // namespace pc
