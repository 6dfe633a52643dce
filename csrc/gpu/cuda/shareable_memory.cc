#include "gpu/cuda/shareable_memory.h"

#include <fcntl.h>

#include <string>

#include "gpu/cuda/capture_mode.h"
#include "gpu/cuda/nbytes_text.h"

namespace pc::cuda {
namespace {

CUmemAllocationProp exportable_memory_of(CUdevice device) {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return what;
}

// A driver has either all of these functions or none.
Status has_functions(const Driver& driver) {
  const bool has = driver.cuMemGetAllocationGranularity != nullptr && driver.cuMemCreate != nullptr &&
                   driver.cuMemRelease != nullptr && driver.cuMemExportToShareableHandle != nullptr &&
                   driver.cuMemImportFromShareableHandle != nullptr &&
                   driver.cuMemAddressReserve != nullptr && driver.cuMemAddressFree != nullptr &&
                   driver.cuMemMap != nullptr && driver.cuMemUnmap != nullptr &&
                   driver.cuMemSetAccess != nullptr;
  return has ? Status::ok() : lacks_function(driver, "cuMemCreate or what goes with it");
}

}  // namespace

Result<ShareableMemory> ShareableMemory::create(const Context& context, std::size_t nbytes) {
  const Driver& driver = context.driver();
  PC_TRY(has_functions(driver));
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(driver);
  const CUmemAllocationProp what = exportable_memory_of(context.device());
  std::size_t grain = 1;
  PC_TRY(
      driver.check(driver.cuMemGetAllocationGranularity(&grain, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "cuMemGetAllocationGranularity"));
  ShareableMemory memory(context);
  Parts& parts = memory.parts_;
  parts.nbytes = (nbytes + grain - 1) / grain * grain;
  const CUresult result = driver.cuMemCreate(&parts.handle, parts.nbytes, &what, 0);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver, "cuMemCreate(" + nbytes_text(parts.nbytes) + ")", result);
  }
  parts.has_handle = true;
  PC_TRY(memory.map());
  return memory;
}

Result<ShareableMemory> ShareableMemory::open(const Context& context, const Fd& fd, std::size_t nbytes) {
  const Driver& driver = context.driver();
  PC_TRY(has_functions(driver));
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(driver);
  ShareableMemory memory(context);
  memory.parts_.nbytes = nbytes;
  // The "pointer" is the number of the file descriptor.
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(fd.get()));
  PC_TRY(driver.check(driver.cuMemImportFromShareableHandle(&memory.parts_.handle, shareable,
                                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                      "cuMemImportFromShareableHandle"));
  memory.parts_.has_handle = true;
  PC_TRY(memory.map());
  return memory;
}

Status ShareableMemory::map() {
  const Driver& driver = context_.driver();
  PC_TRY(driver.check(driver.cuMemAddressReserve(&parts_.at, parts_.nbytes, 0, 0, 0), "cuMemAddressReserve"));
  PC_TRY(driver.check(driver.cuMemMap(parts_.at, parts_.nbytes, 0, parts_.handle, 0), "cuMemMap"));
  parts_.is_mapped = true;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, context_.device()},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver.check(driver.cuMemSetAccess(parts_.at, parts_.nbytes, &access, 1), "cuMemSetAccess");
}

ShareableMemory::~ShareableMemory() {
  if (!parts_.has_handle) return;  // moved from or never created: there may be no context
  const Driver& driver = context_.driver();
  if (!driver.is_usable()) return;
  const Result<ContextGuard> current = context_.enter();
  const OwnCaptureMode own(driver);
  if (!current.is_ok()) return;
  if (parts_.is_mapped) (void)driver.cuMemUnmap(parts_.at, parts_.nbytes);
  if (parts_.at != 0) (void)driver.cuMemAddressFree(parts_.at, parts_.nbytes);
  (void)driver.cuMemRelease(parts_.handle);
}

Result<Fd> ShareableMemory::export_fd() const {
  const Driver& driver = context_.driver();
  int number = -1;
  PC_TRY(driver.check(driver.cuMemExportToShareableHandle(&number, parts_.handle,
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                      "cuMemExportToShareableHandle"));
  Fd fd(number);
  // otherwise programs that this process starts would inherit it and keep the memory alive
  (void)::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace pc::cuda
