#include "gpu/ipc/ipc_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu/cuda/pointer.h"

namespace pc {

IpcMemory::IpcMemory(cuda::Context context, std::vector<Rank> processes,
                     std::shared_ptr<IpcMappings> mappings)
    : context_(std::move(context)),
      processes_(std::move(processes)),
      all_here_(std::all_of(processes_.begin(), processes_.end(), [](Rank process) { return process < 0; })),
      mappings_(std::move(mappings)) {}

Result<PeerArray> IpcMemory::export_array(const ConstBuffer& array) {
  constexpr std::size_t kMost = 256;
  PeerArray made;
  made.address = reinterpret_cast<uint64_t>(array.data);
  if (made.address == 0 || array.count == 0) return PeerArray();
  if (all_here_) return made;
  PC_ASSIGN_OR_RETURN(const cuda::PointerInfo info, cuda::classify_pointer(context_.driver(), made.address));
  if (info.id == 0) return Status(Code::kUnsupported, "the driver does not tell this allocation from others");
  if (made.address - info.base + array.nbytes() > info.nbytes)
    return Status(Code::kInvalidArgument, "the array goes beyond its allocation on the GPU");
  made.allocation = {info.base, info.nbytes, info.id, {}};
  if (shown_.size() > kMost) shown_.clear();
  const auto known = shown_.find(info.id);
  if (known == shown_.end()) {
    PC_ASSIGN_OR_RETURN(const cuda::MemoryHandle handle,
                        cuda::export_memory(context_, made.address, array.nbytes()));
    shown_[info.id] = made.allocation.handle = handle.allocation;
  } else {
    made.allocation.handle = known->second;
  }
  return made;
}

bool IpcMemory::shows(const ConstBuffer& array) {
  const bool is_complex = array.dtype == DType::kC64 || array.dtype == DType::kC128;
  const std::size_t alignment = size_of(array.dtype) / (is_complex ? 2 : 1);
  return array.list == nullptr && reinterpret_cast<uintptr_t>(array.data) % alignment == 0 &&
         export_array(array).is_ok();
}

Result<std::byte*> IpcMemory::reach(Rank peer, const PeerArray& array) {
  const Rank process = processes_[static_cast<std::size_t>(peer)];
  if (array.address == 0 || process < 0) return reinterpret_cast<std::byte*>(array.address);
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<const cuda::PeerAllocation> allocation,
                      mappings_->open(context_, process, array.allocation));
  held_.push_back(allocation);
  return reinterpret_cast<std::byte*>(allocation->at() + (array.address - array.allocation.begin));
}

void IpcMemory::close(Rank peer, const PeerArray& array) {
  const Rank process = processes_[static_cast<std::size_t>(peer)];
  if (process >= 0) mappings_->close(context_, process, array.allocation.id);
}

}  // namespace pc
