#include "comm/peer_memory.h"

#include <algorithm>
#include <string>

#include "cuda/pointer.h"

namespace pc {

PeerMemory::PeerMemory(cuda::Context context, std::vector<bool> is_here)
    : context_(std::move(context)),
      is_here_(std::move(is_here)),
      all_here_(std::all_of(is_here_.begin(), is_here_.end(), [](bool here) { return here; })) {}

Result<PeerArray> PeerMemory::export_array(const ConstBuffer& array) const {
  PeerArray made;
  made.address = reinterpret_cast<uint64_t>(array.data);
  if (made.address == 0 || array.count == 0) return PeerArray();
  if (all_here_) return made;
  PC_ASSIGN_OR_RETURN(const cuda::PointerInfo info, cuda::classify_pointer(context_.driver(), made.address));
  made.id = info.id;
  PC_ASSIGN_OR_RETURN(made.handle, cuda::export_memory(context_, made.address, array.nbytes()));
  return made;
}

Result<std::byte*> PeerMemory::reach(Rank peer, const PeerArray& array) {
  if (array.address == 0 || is_here_[static_cast<std::size_t>(peer)])
    return reinterpret_cast<std::byte*>(array.address);
  Open& open = open_[{peer, array.id}];
  if (open.allocation == nullptr) {
    open.begin = array.address - array.handle.offset;
    open.handle = array.handle.allocation;
    close_what_it_replaces(peer, array.id, open);  // first: the driver may know both by one handle
    PC_ASSIGN_OR_RETURN(open.allocation, cuda::PeerAllocation::open(context_, array.handle.allocation));
  }
  const uint64_t has = open.allocation->nbytes();
  if (has != 0 && (array.handle.offset > has || array.handle.nbytes > has - array.handle.offset))
    return Status(Code::kInternal, "rank " + std::to_string(peer) +
                                       " names memory behind the end of its allocation on the GPU");
  open.used = ++uses_;
  std::byte* const reached = reinterpret_cast<std::byte*>(open.allocation->at() + array.handle.offset);
  close_what_is_old();
  return reached;
}

void PeerMemory::close_what_it_replaces(Rank peer, uint64_t id, const Open& newer) {
  std::erase_if(open_, [&](const auto& entry) {
    const auto& [key, open] = entry;
    return key.first == peer && key.second != id &&
           (open.begin == newer.begin || open.handle == newer.handle);
  });
}

void PeerMemory::close_what_is_old() {
  constexpr std::size_t kMost = 256;  // what one call needs is 14
  while (open_.size() > kMost) {
    open_.erase(std::min_element(open_.begin(), open_.end(),
                                 [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
}

}  // namespace pc
