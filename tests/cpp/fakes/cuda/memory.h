// A FAKE of the CUDA driver: memory of "devices", which is memory of the host, and the stream
// operations on it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "fakes/cuda/events.h"

namespace pc::cuda {

// Returns the block that contains [at, at + nbytes), or null if none does.
inline std::pair<const uintptr_t, Block>* find_block(uintptr_t at, std::size_t nbytes = 1) {
  auto after = world().blocks.upper_bound(at);
  if (after == world().blocks.begin()) return nullptr;
  auto& [base, block] = *--after;
  return at - base <= block.nbytes && nbytes <= block.nbytes - (at - base) ? &*after : nullptr;
}
inline void unmap(uintptr_t base, const Block& block) {
  if (block.kind != Kind::kRegistered && !block.adopted)
    ::munmap(reinterpret_cast<void*>(base), pages(block.nbytes));
  if (block.fd >= 0) ::close(block.fd);
}
inline std::size_t memory_used(int device) {
  std::size_t used = 0;
  for (const auto& [base, block] : world().blocks) {
    if (block.kind == Kind::kDevice && block.device == device) used += block.nbytes;
  }
  return used;
}
// Returns null if there is no memory.
inline void* make_block(Kind kind, std::size_t nbytes) {
  CUcontext context = this_thread().context;
  const int fd = make_file(pages(nbytes));
  void* const memory = fd >= 0 ? map_file(fd, pages(nbytes)) : nullptr;
  if (memory == nullptr) return nullptr;
  const int device = context != nullptr ? context->device : 0;
  Block& block = world().blocks[reinterpret_cast<uintptr_t>(memory)];
  block = {kind, nbytes, context, device, fd};
  block.id = ++world().last_id;
  return memory;
}
inline CUresult give_back(uintptr_t base, Kind kind, CUresult otherwise) {
  const auto found = world().blocks.find(base);
  if (found == world().blocks.end() || found->second.kind != kind) return otherwise;
  if (kind == Kind::kPeer && --found->second.opened > 0) return CUDA_SUCCESS;
  unmap(base, found->second);
  world().blocks.erase(found);
  return CUDA_SUCCESS;
}

// Waits for the work of the device, as the driver does before it frees. Does not wait for held
// work.
inline void wait_for_device(Call& call) {
  CUcontext context = this_thread().context;
  world().changed.wait(call.lock(), [context] {
    return std::all_of(world().streams.begin(), world().streams.end(), [context](const auto& stream) {
      return stream->context != context || (!stream->busy && (stream->queue.empty() || !may_go(*stream)));
    });
  });
}

inline CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  BEGIN_IN_CONTEXT(cuMemGetInfo);
  *total = world().memory;
  *free = *total - memory_used(this_thread().context->device);
  return CUDA_SUCCESS;
}
inline CUresult cuMemAlloc(CUdeviceptr* at, std::size_t nbytes) {
  BEGIN_UNSAFE(cuMemAlloc);
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (nbytes > world().memory - memory_used(this_thread().context->device)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const memory = make_block(Kind::kDevice, nbytes);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
inline CUresult cuMemFree(CUdeviceptr at) {
  BEGIN_UNSAFE(cuMemFree);
  wait_for_device(call);
  return give_back(at, Kind::kDevice, CUDA_ERROR_INVALID_VALUE);
}
inline CUresult cuMemHostAlloc(void** at, std::size_t nbytes, unsigned) {
  BEGIN_UNSAFE(cuMemHostAlloc);
  if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *at = make_block(Kind::kPinned, nbytes);
  return *at != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
inline CUresult cuMemFreeHost(void* at) {
  BEGIN_UNSAFE(cuMemFreeHost);
  wait_for_device(call);
  return give_back(reinterpret_cast<uintptr_t>(at), Kind::kPinned, CUDA_ERROR_INVALID_VALUE);
}
inline CUresult cuMemHostRegister(void* at, std::size_t nbytes, unsigned) {
  BEGIN_UNSAFE(cuMemHostRegister);
  const auto base = reinterpret_cast<uintptr_t>(at);
  if (at == nullptr || nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto next = world().blocks.lower_bound(base);
  if (find_block(base) != nullptr || (next != world().blocks.end() && next->first < base + nbytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  world().blocks[base] = {Kind::kRegistered, nbytes, this_thread().context, this_thread().context->device};
  return CUDA_SUCCESS;
}
inline CUresult cuMemHostUnregister(void* at) {
  BEGIN_UNSAFE(cuMemHostUnregister);
  return give_back(reinterpret_cast<uintptr_t>(at), Kind::kRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

inline bool is_of_device(Kind kind) {
  return kind == Kind::kDevice || kind == Kind::kMapped || kind == Kind::kPeer;
}

inline void answer(int attribute, void* into, uintptr_t base, const Block* block) {
  const auto put = [into](auto value) { std::memcpy(into, &value, sizeof value); };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(block != nullptr ? block->context : CUcontext{nullptr});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (block == nullptr) return put(0U);
      return put(is_of_device(block->kind) || block->kind == Kind::kManaged ? unsigned{CU_MEMORYTYPE_DEVICE}
                                                                            : unsigned{CU_MEMORYTYPE_HOST});
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(block != nullptr && block->kind == Kind::kManaged ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(block != nullptr ? block->device : -2);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(block != nullptr && block->kind == Kind::kDevice && block->context != nullptr ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(CUdeviceptr{base});
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(block != nullptr ? block->id : uint64_t{0});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(block != nullptr ? block->nbytes : std::size_t{0});
    default: return;
  }
}
inline CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr at) {
  BEGIN(cuPointerGetAttributes);
  const auto* const found = find_block(at);
  for (unsigned i = 0; i < count; ++i) {
    answer(attributes[i], values[i], found != nullptr ? found->first : 0,
           found != nullptr ? &found->second : nullptr);
  }
  return CUDA_SUCCESS;
}

// Returns true if a stream may access this memory as a GPU does.
inline bool gpu_reaches(CUdeviceptr at, std::size_t nbytes) {
  const auto* const found = find_block(at, nbytes);
  return found != nullptr && found->second.usable;
}
inline void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(static_cast<uintptr_t>(at)); }

inline CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t nbytes, CUstream stream) {
  return enqueue(stream, [=] { std::memmove(pointer(to), pointer(from), nbytes); });
}
inline CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemcpyHtoDAsync);
  if (!gpu_reaches(to, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto source = reinterpret_cast<CUdeviceptr>(from);
  if (find_block(source, nbytes) != nullptr) return copy(to, source, nbytes, stream);
  ++world().calls["pageable"];  // the driver reads such memory before it returns
  const auto* const bytes = static_cast<const char*>(from);
  return enqueue(stream, [to, staged = std::vector<char>(bytes, bytes + nbytes)] {
    std::memcpy(pointer(to), staged.data(), staged.size());
  });
}
inline CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemcpyDtoHAsync);
  if (!gpu_reaches(from, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto target = reinterpret_cast<CUdeviceptr>(to);
  if (find_block(target, nbytes) == nullptr) ++world().calls["pageable"];
  return copy(target, from, nbytes, stream);
}
inline CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemcpyDtoDAsync);
  if (!gpu_reaches(to, nbytes) || !gpu_reaches(from, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  return copy(to, from, nbytes, stream);
}
inline CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t nbytes, CUstream stream) {
  BEGIN_IN_CONTEXT(cuMemsetD8Async);
  if (!gpu_reaches(to, nbytes)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [=] { std::memset(pointer(to), value, nbytes); });
}
inline CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, uint32_t value, unsigned) {
  BEGIN_IN_CONTEXT(cuStreamWriteValue32);
  if (at % 4 != 0 || !gpu_reaches(at, 4)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream,
                 [=] { __atomic_store_n(static_cast<uint32_t*>(pointer(at)), value, __ATOMIC_RELEASE); });
}
inline CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
  BEGIN_IN_CONTEXT(cuStreamWaitValue32);
  if (at % 4 != 0 || !gpu_reaches(at, 4)) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  const auto reached = [=] {
    const uint32_t word = __atomic_load_n(static_cast<uint32_t*>(pointer(at)), __ATOMIC_ACQUIRE);
    return static_cast<int32_t>(word - value) >= 0;
  };
  return enqueue(stream, Operation{reached, [] {}});
}

}  // namespace pc::cuda
