#include "gpu/ipc/ipc_mappings.h"

#include <algorithm>

namespace pc {
namespace {

constexpr std::size_t kMostMappings = 256;  // one call of a group needs at most 16

bool exclude_each_other(const PeerAllocationId& a, const PeerAllocationId& b) {
  return a.handle == b.handle || (a.begin < b.begin + b.nbytes && b.begin < a.begin + a.nbytes);
}

}  // namespace

Result<std::shared_ptr<const cuda::PeerAllocation>> IpcMappings::open(const cuda::Context& context,
                                                                      Rank process,
                                                                      const PeerAllocationId& what) {
  const std::lock_guard lock(mutex_);
  const Key key(context.ordinal(), process, what.id);
  const auto known = open_.find(key);
  if (known != open_.end()) {
    known->second.used = ++uses_;
    return known->second.allocation;
  }
  // If two allocations have equal handles or overlap, the older one has been freed in its process.
  // It is closed before the new one is opened, because the driver may refuse to open both, or may
  // have one handle for both.
  std::erase_if(open_, [&](const auto& entry) {
    return std::get<0>(entry.first) == context.ordinal() && std::get<1>(entry.first) == process &&
           exclude_each_other(entry.second.what, what);
  });
  while (open_.size() >= kMostMappings) {
    open_.erase(std::min_element(open_.begin(), open_.end(),
                                 [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  Result<std::shared_ptr<const cuda::PeerAllocation>> opened =
      cuda::PeerAllocation::open(context, what.handle);
  if (!opened.is_ok() && !open_.empty()) {  // there may be a conflict that is not recorded here
    open_.clear();
    opened = cuda::PeerAllocation::open(context, what.handle);
  }
  if (opened.is_ok()) open_[key] = {what, ++uses_, opened.value()};
  return opened;
}

void IpcMappings::close(const cuda::Context& context, Rank process, uint64_t id) {
  const std::lock_guard lock(mutex_);
  open_.erase(Key(context.ordinal(), process, id));
}

}  // namespace pc
