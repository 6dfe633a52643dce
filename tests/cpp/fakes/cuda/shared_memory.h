// A FAKE of the CUDA driver: memory of other processes, and memory that is mapped separately from
// its allocation.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "fakes/cuda/memory.h"

namespace pc::cuda {

// --- Memory of other processes

inline CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr at) {
  BEGIN_UNSAFE(cuIpcGetMemHandle);
  const auto* const found = find_block(at);
  if (found == nullptr || found->second.kind != Kind::kDevice || found->second.context == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  write_ticket(*handle, kMemoryTicket, found->second.fd, found->second.nbytes);
  return CUDA_SUCCESS;
}
inline CUresult cuIpcOpenMemHandle(CUdeviceptr* at, CUipcMemHandle handle, unsigned) {
  BEGIN_UNSAFE(cuIpcOpenMemHandle);
  const std::string name(handle.reserved, sizeof handle.reserved);
  for (auto& [base, block] : world().blocks) {
    if (block.kind != Kind::kPeer || block.handle != name) continue;
    ++block.opened;
    *at = base;
    return CUDA_SUCCESS;
  }
  Ticket ticket;
  const int fd = open_ticket(handle, kMemoryTicket, ticket);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  void* const memory = map_file(fd, pages(ticket.nbytes));
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(memory);
  CUcontext context = this_thread().context;
  world().blocks[*at] = {Kind::kPeer, ticket.nbytes, context, context->device, fd, true, 1, name};
  return CUDA_SUCCESS;
}
inline CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
  BEGIN_UNSAFE(cuIpcCloseMemHandle);
  return give_back(at, Kind::kPeer, CUDA_ERROR_INVALID_VALUE);
}

// --- Memory and address ranges, separately

inline CUresult cuMemGetAllocationGranularity(std::size_t* nbytes, const CUmemAllocationProp*, int) {
  BEGIN(cuMemGetAllocationGranularity);
  *nbytes = kGrain;
  return CUDA_SUCCESS;
}
inline CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t nbytes,
                            const CUmemAllocationProp* what, unsigned long long) {
  BEGIN(cuMemCreate);
  if (nbytes == 0 || nbytes % kGrain != 0 || what->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (what->location.type != CU_MEM_LOCATION_TYPE_DEVICE || what->location.id >= world().device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const int fd = make_file(nbytes);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = world().next_handle++;
  world().handles[*handle] = {fd, nbytes};
  return CUDA_SUCCESS;
}
inline CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  BEGIN(cuMemRelease);
  const auto found = world().handles.find(handle);
  if (found == world().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  ::close(found->second.fd);
  world().handles.erase(found);
  return CUDA_SUCCESS;
}
inline CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle, int type,
                                             unsigned long long) {
  BEGIN(cuMemExportToShareableHandle);
  const auto found = world().handles.find(handle);
  if (found == world().handles.end() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = ::dup(found->second.fd);
  std::memcpy(shareable, &fd, sizeof fd);
  return CUDA_SUCCESS;
}
inline CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                               int type) {
  BEGIN(cuMemImportFromShareableHandle);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int fd = ::fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 3);
  const off_t nbytes = fd >= 0 ? ::lseek(fd, 0, SEEK_END) : 0;
  if (nbytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = world().next_handle++;
  world().handles[*handle] = {fd, static_cast<std::size_t>(nbytes)};
  return CUDA_SUCCESS;
}
inline CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t nbytes, std::size_t, CUdeviceptr,
                                    unsigned long long) {
  BEGIN(cuMemAddressReserve);
  if (nbytes == 0 || nbytes % kGrain != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const room = ::mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(room);
  world().reservations[*at] = nbytes;
  return CUDA_SUCCESS;
}
inline CUresult cuMemAddressFree(CUdeviceptr at, std::size_t nbytes) {
  BEGIN(cuMemAddressFree);
  const auto found = world().reservations.find(at);
  const bool mapped = world().blocks.count(at) != 0;
  if (found == world().reservations.end() || found->second != nbytes || mapped)
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(pointer(at), nbytes);
  world().reservations.erase(found);
  return CUDA_SUCCESS;
}
inline CUresult cuMemMap(CUdeviceptr at, std::size_t nbytes, std::size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long) {
  BEGIN(cuMemMap);
  const auto room = world().reservations.find(at);
  const auto memory = world().handles.find(handle);
  if (room == world().reservations.end() || memory == world().handles.end() || offset != 0 ||
      nbytes > room->second || nbytes > memory->second.nbytes || world().blocks.count(at) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (map_file(memory->second.fd, nbytes, pointer(at), PROT_NONE) == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  world().blocks[at] = {Kind::kMapped, nbytes, nullptr, 0, -1, false};
  return CUDA_SUCCESS;
}
inline CUresult cuMemUnmap(CUdeviceptr at, std::size_t nbytes) {
  BEGIN(cuMemUnmap);
  const auto found = world().blocks.find(at);
  if (found == world().blocks.end() || found->second.kind != Kind::kMapped ||
      found->second.nbytes != nbytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::mmap(pointer(at), nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  world().blocks.erase(found);
  return CUDA_SUCCESS;
}
inline CUresult cuMemSetAccess(CUdeviceptr at, std::size_t nbytes, const CUmemAccessDesc* access,
                               std::size_t count) {
  BEGIN(cuMemSetAccess);
  const auto found = world().blocks.find(at);
  if (found == world().blocks.end() || found->second.kind != Kind::kMapped ||
      found->second.nbytes != nbytes || count == 0 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.device = access->location.id;
  found->second.usable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return ::mprotect(pointer(at), nbytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace pc::cuda
