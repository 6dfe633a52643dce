// Device memory and events that other processes of this host open by handles. Memory of pools, of torch's expandable segments
// and of other virtual mappings has no such handle: ShareableMemory is for us, and for theirs there is copying.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "gpu/cuda/context.h"
#include "gpu/cuda/event.h"

namespace pc::cuda {

// Handles are bytes and travel as such. They say nothing about who may use them: give them to ranks of this group alone.
using HandleBytes = std::array<std::byte, 64>;

// A piece of an allocation; handles are of whole ones.
struct MemoryHandle {
  HandleBytes allocation{};
  uint64_t offset = 0;
  uint64_t nbytes = 0;
};
// kUnsupported: memory of a kind that has no handle, or a system that forbids it. kInvalidArgument: not memory of a device, or
// more than one allocation. The memory must stay until every process that opened it has closed it.
Result<MemoryHandle> export_memory(const Context& context, CUdeviceptr at, uint64_t nbytes);

Result<HandleBytes> export_event(const Event& event);  // that was made for kProcesses
Result<Event> open_event(const Context& context, const HandleBytes& handle);

// Another process's allocation, mapped here. The process that made it cannot open it.
// Thread-safety: immutable. The destructor calls the driver: no static.
class PeerAllocation {
 public:
  static Result<std::shared_ptr<const PeerAllocation>> open(const Context& context,
                                                            const HandleBytes& handle);
  PeerAllocation(const PeerAllocation&) = delete;
  PeerAllocation& operator=(const PeerAllocation&) = delete;
  ~PeerAllocation();

  CUdeviceptr at() const { return at_; }
  uint64_t nbytes() const { return nbytes_; }

 private:
  PeerAllocation(Context context, CUdeviceptr at, uint64_t nbytes)
      : context_(std::move(context)),
        at_(at),
        nbytes_(nbytes) {}
  Context context_;
  CUdeviceptr at_;
  uint64_t nbytes_;  // 0: the driver does not say
};

struct IpcMemory {
  CUdeviceptr at = 0;
  uint64_t nbytes = 0;
  std::shared_ptr<const PeerAllocation> allocation;  // keeps it open
};

// Opens each allocation once for as long as somebody has it: opening is slow.
// Thread-safety: any thread.
class PeerAllocations {
 public:
  explicit PeerAllocations(Context context) : context_(std::move(context)) {}
  // kInvalidArgument: the piece does not lie in the allocation.
  Result<IpcMemory> open(const MemoryHandle& handle);

 private:
  Context context_;
  std::mutex mutex_;
  std::map<HandleBytes, std::weak_ptr<const PeerAllocation>> open_;  // guarded by mutex_
};

}  // namespace pc::cuda
