// Device memory and events that other processes of this host open by handles. Memory of pools, of
// torch's expandable segments and of other virtual mappings has no such handle. For its own virtual
// mappings this library uses ShareableMemory; such memory of other libraries must be copied.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "gpu/cuda/context.h"
#include "gpu/cuda/event.h"

namespace pc::cuda {

// Handles are sent as bytes. Every process that has a handle can open it, so send handles only to
// ranks of this group.
using HandleBytes = std::array<std::byte, 64>;

// A part of an allocation; the handle refers to the whole allocation.
struct MemoryHandle {
  HandleBytes allocation{};
  uint64_t offset = 0;
  uint64_t nbytes = 0;
};
// Returns kUnsupported for memory of a kind that has no handle, or if the system forbids it.
// Returns kInvalidArgument for memory that is not device memory, or if the range exceeds one
// allocation. The memory must stay allocated until every process that opened it has closed it.
Result<MemoryHandle> export_memory(const Context& context, CUdeviceptr at, uint64_t nbytes);

Result<HandleBytes> export_event(const Event& event);  // the event must be created with kProcesses
Result<Event> open_event(const Context& context, const HandleBytes& handle);

// Another process's allocation, mapped into this process. A process cannot open an allocation that
// it has exported itself. Thread-safety: immutable. The destructor calls the driver, so it must not
// be static.
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
  uint64_t nbytes_;  // 0: the driver does not report it
};

struct IpcMemory {
  CUdeviceptr at = 0;
  uint64_t nbytes = 0;
  std::shared_ptr<const PeerAllocation> allocation;  // keeps the mapping open
};

// Opens an allocation once, and shares it while it is in use, because opening is slow.
// Thread-safety: any thread.
class PeerAllocations {
 public:
  explicit PeerAllocations(Context context) : context_(std::move(context)) {}
  // Returns kInvalidArgument if the range exceeds the allocation.
  Result<IpcMemory> open(const MemoryHandle& handle);

 private:
  Context context_;
  std::mutex mutex_;
  std::map<HandleBytes, std::weak_ptr<const PeerAllocation>> open_;  // guarded by mutex_
};

}  // namespace pc::cuda
