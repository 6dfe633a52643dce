#include "gpu/cuda/context.h"

#include <string>

namespace pc::cuda {

Result<ContextGuard> ContextGuard::enter(const Driver& driver, CUcontext context) {
  CUcontext before = nullptr;
  PC_TRY(driver.check(driver.cuCtxGetCurrent(&before), "cuCtxGetCurrent"));
  if (before == context) return ContextGuard(nullptr, nullptr);
  PC_TRY(driver.check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent"));
  return ContextGuard(&driver, before);
}

Result<Context> Context::primary(std::shared_ptr<const Driver> driver, int ordinal) {
  CUdevice device = -1;
  PC_TRY(driver->check(driver->cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  CUcontext context = nullptr;
  const CUresult result = driver->cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) {
    return cuda_error(*driver, "cuDevicePrimaryCtxRetain(GPU " + std::to_string(ordinal) + ")", result);
  }
  return Context(std::move(driver), context, device, ordinal);
}

Status Context::enable_peer(const Context& peer) const {
  if (peer.context_ == context_) return Status::ok();
  PC_ASSIGN_OR_RETURN(const ContextGuard current, enter());
  const CUresult result = driver_->cuCtxEnablePeerAccess(peer.context_, 0);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return Status::ok();
  return cuda_error(*driver_,
                    "cuCtxEnablePeerAccess(GPU " + std::to_string(ordinal_) + " to GPU " +
                        std::to_string(peer.ordinal_) + ")",
                    result);
}

Result<Context::FreeMemory> Context::available_memory() const {
  PC_ASSIGN_OR_RETURN(const ContextGuard current, enter());
  std::size_t free = 0, total = 0;
  PC_TRY(driver_->check(driver_->cuMemGetInfo(&free, &total), "cuMemGetInfo"));
  return FreeMemory{free, total};
}

std::string Context::available_text() const {
  const Result<FreeMemory> available = available_memory();
  if (!available.is_ok()) return "an unknown amount is free";
  const auto mib = [](uint64_t nbytes) { return std::to_string(nbytes >> 20) + " MiB"; };
  return mib(available.value().free_nbytes) + " of " + mib(available.value().total_nbytes) + " are free";
}

}  // namespace pc::cuda
