#include "gpu/cuda/ipc.h"

#include <cstring>
#include <string>

#include "gpu/cuda/capture_mode.h"
#include "gpu/cuda/nbytes_text.h"
#include "gpu/cuda/pointer.h"

namespace pc::cuda {
namespace {

static_assert(sizeof(HandleBytes) == sizeof(CUipcMemHandle) &&
              sizeof(HandleBytes) == sizeof(CUipcEventHandle));

template <class To, class From>
To as(const From& from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace

Result<MemoryHandle> export_memory(const Context& context, CUdeviceptr at, uint64_t nbytes) {
  const Driver& driver = context.driver();
  if (driver.cuIpcGetMemHandle == nullptr) return lacks_function(driver, "cuIpcGetMemHandle");
  PC_ASSIGN_OR_RETURN(const PointerInfo info, classify_pointer(driver, at));
  if (info.kind != MemoryKind::kDevice) {
    return Status(Code::kInvalidArgument,
                  std::string(name_of(info.kind)) +
                      " memory is not a device's and cannot be exported to other processes");
  }
  if (!info.ipc) {
    return Status(
        Code::kUnsupported,
        "this memory has no handle for other processes: it is of a pool (cudaMallocAsync) or of a virtual "
        "mapping, as torch's is with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  }
  const uint64_t offset = at - info.base;
  if (offset > info.nbytes || nbytes > info.nbytes - offset) {
    return Status(Code::kInvalidArgument, nbytes_text(nbytes) + " at offset " + std::to_string(offset) +
                                              " go beyond their allocation of " + nbytes_text(info.nbytes));
  }
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(driver);
  CUipcMemHandle handle{};
  PC_TRY(driver.check(driver.cuIpcGetMemHandle(&handle, info.base), "cuIpcGetMemHandle"));
  return MemoryHandle{as<HandleBytes>(handle), offset, nbytes};
}

Result<HandleBytes> export_event(const Event& event) {
  const Driver& driver = event.context().driver();
  if (driver.cuIpcGetEventHandle == nullptr) return lacks_function(driver, "cuIpcGetEventHandle");
  PC_ASSIGN_OR_RETURN(const ContextGuard current, event.context().enter());
  const OwnCaptureMode own(driver);
  CUipcEventHandle handle{};
  PC_TRY(driver.check(driver.cuIpcGetEventHandle(&handle, event.get()), "cuIpcGetEventHandle"));
  return as<HandleBytes>(handle);
}

Result<Event> open_event(const Context& context, const HandleBytes& handle) {
  const Driver& driver = context.driver();
  if (driver.cuIpcOpenEventHandle == nullptr) return lacks_function(driver, "cuIpcOpenEventHandle");
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(driver);
  CUevent event = nullptr;
  PC_TRY(driver.check(driver.cuIpcOpenEventHandle(&event, as<CUipcEventHandle>(handle)),
                      "cuIpcOpenEventHandle"));
  return Event::adopt(context, event);
}

Result<std::shared_ptr<const PeerAllocation>> PeerAllocation::open(const Context& context,
                                                                   const HandleBytes& handle) {
  const Driver& driver = context.driver();
  if (driver.cuIpcOpenMemHandle == nullptr || driver.cuIpcCloseMemHandle == nullptr) {
    return lacks_function(driver, "cuIpcOpenMemHandle");
  }
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(driver);
  CUdeviceptr at = 0;
  PC_TRY(driver.check(
      driver.cuIpcOpenMemHandle(&at, as<CUipcMemHandle>(handle), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
      "cuIpcOpenMemHandle"));
  std::shared_ptr<PeerAllocation> opened(new PeerAllocation(context, at, 0));
  PC_ASSIGN_OR_RETURN(const PointerInfo info, classify_pointer(driver, at));
  opened->nbytes_ = info.nbytes;
  return std::shared_ptr<const PeerAllocation>(std::move(opened));
}

PeerAllocation::~PeerAllocation() {
  if (!context_.driver().is_usable()) return;
  const Result<ContextGuard> current = context_.enter();
  const OwnCaptureMode own(context_.driver());
  if (current.is_ok()) (void)context_.driver().cuIpcCloseMemHandle(at_);
}

Result<IpcMemory> PeerAllocations::open(const MemoryHandle& handle) {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const PeerAllocation>& known = open_[handle.allocation];
  IpcMemory memory;
  memory.allocation = known.lock();
  if (memory.allocation == nullptr) {
    Result<std::shared_ptr<const PeerAllocation>> opened = PeerAllocation::open(context_, handle.allocation);
    if (!opened.is_ok()) {
      open_.erase(handle.allocation);
      return opened.status();
    }
    known = memory.allocation = std::move(opened).value();
  }
  const uint64_t has = memory.allocation->nbytes();
  if (has != 0 && (handle.offset > has || handle.nbytes > has - handle.offset)) {
    return Status(Code::kInvalidArgument, "a peer names " + nbytes_text(handle.nbytes) + " at offset " +
                                              std::to_string(handle.offset) + " of an allocation of " +
                                              nbytes_text(has));
  }
  memory.at = memory.allocation->at() + handle.offset;
  memory.nbytes = handle.nbytes;
  return memory;
}

}  // namespace pc::cuda
