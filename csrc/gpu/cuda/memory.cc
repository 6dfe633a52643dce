#include "gpu/cuda/memory.h"

#include <string>

#include "gpu/cuda/capture_mode.h"
#include "gpu/cuda/nbytes_text.h"
#include "gpu/cuda/pointer.h"

namespace pc::cuda {
namespace {

CUdeviceptr address_of(const std::byte* byte) { return reinterpret_cast<CUdeviceptr>(byte); }

bool is_registered(const Driver& driver, std::span<const std::byte> bytes) {
  for (const std::byte* const byte : {bytes.data(), bytes.data() + bytes.size() - 1}) {
    const Result<PointerInfo> info = classify_pointer(driver, address_of(byte));
    if (!info.is_ok() || info.value().kind != MemoryKind::kRegistered) return false;
  }
  return true;
}

// Calls `give_back` in the context, if the driver can still be used.
template <class GiveBack>
void in_context(const Context& context, GiveBack give_back) {
  if (!context.driver().is_usable()) return;
  const Result<ContextGuard> current = context.enter();
  const OwnCaptureMode own(context.driver());
  if (current.is_ok()) give_back(context.driver());
}

}  // namespace

Result<DeviceMemory> DeviceMemory::allocate(const Context& context, std::size_t nbytes) {
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(context.driver());
  CUdeviceptr at = 0;
  const CUresult result = context.driver().cuMemAlloc(&at, nbytes);
  if (result != CUDA_SUCCESS) {
    const std::string available =
        result == CUDA_ERROR_OUT_OF_MEMORY ? ", where " + context.available_text() : "";
    return cuda_error(
        context.driver(),
        "cuMemAlloc(" + nbytes_text(nbytes) + ") on GPU " + std::to_string(context.ordinal()) + available,
        result);
  }
  return DeviceMemory(context, at, nbytes);
}

DeviceMemory::~DeviceMemory() {
  if (at_ != 0) in_context(context_, [this](const Driver& driver) { (void)driver.cuMemFree(at_); });
}

Result<PinnedMemory> PinnedMemory::allocate(const Context& context, std::size_t nbytes) {
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(context.driver());
  void* at = nullptr;
  const CUresult result = context.driver().cuMemHostAlloc(&at, nbytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) {
    return cuda_error(context.driver(), "cuMemHostAlloc(" + nbytes_text(nbytes) + ")", result);
  }
  return PinnedMemory(context, {static_cast<std::byte*>(at), nbytes});
}

PinnedMemory::~PinnedMemory() {
  if (bytes_.empty()) return;
  in_context(context_, [this](const Driver& driver) { (void)driver.cuMemFreeHost(bytes_.data()); });
}

Result<RegisteredMemory> RegisteredMemory::of(const Context& context, std::span<std::byte> bytes) {
  if (bytes.empty()) return RegisteredMemory(context, bytes, false);
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(context.driver());
  const CUresult result =
      context.driver().cuMemHostRegister(bytes.data(), bytes.size(), CU_MEMHOSTREGISTER_PORTABLE);
  if (result == CUDA_SUCCESS) return RegisteredMemory(context, bytes, true);
  if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED && is_registered(context.driver(), bytes)) {
    return RegisteredMemory(context, bytes, false);
  }
  return cuda_error(context.driver(), "cuMemHostRegister(" + nbytes_text(bytes.size()) + ")", result);
}

RegisteredMemory::~RegisteredMemory() {
  if (!is_ours_) return;
  in_context(context_, [this](const Driver& driver) { (void)driver.cuMemHostUnregister(bytes_.data()); });
}

}  // namespace pc::cuda
