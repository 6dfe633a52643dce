#include "gpu/cuda/pointer.h"

#include <iterator>

namespace pc::cuda {
namespace {

MemoryKind kind_of(unsigned memory_type, unsigned is_managed) {
  if (is_managed != 0) return MemoryKind::kManaged;
  if (memory_type == CU_MEMORYTYPE_DEVICE) return MemoryKind::kDevice;
  return memory_type == CU_MEMORYTYPE_HOST ? MemoryKind::kRegistered : MemoryKind::kHost;
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost: return "host";
    case MemoryKind::kRegistered: return "registered";
    case MemoryKind::kDevice: return "device";
    case MemoryKind::kManaged: return "managed";
  }
  return "?";
}

Result<PointerInfo> classify_pointer(const Driver& driver, CUdeviceptr at) {
  unsigned memory_type = 0, is_managed = 0, ipc = 0;
  int ordinal = -1;
  std::size_t nbytes = 0;
  PointerInfo info;
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_CONTEXT,
                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                      CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&memory_type, &is_managed, &ordinal, &info.context, &info.base, &nbytes, &info.id, &ipc};
  static_assert(std::size(attributes) == std::size(values));
  PC_TRY(driver.check(driver.cuPointerGetAttributes(std::size(attributes), attributes, values, at),
                      "cuPointerGetAttributes"));
  info.kind = kind_of(memory_type, is_managed);
  if (info.kind == MemoryKind::kHost) return PointerInfo();
  info.device = ordinal;
  info.nbytes = nbytes;
  info.ipc = info.kind == MemoryKind::kDevice && ipc != 0;
  return info;
}

}  // namespace pc::cuda
