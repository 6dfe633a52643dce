// The part of the CUDA driver's interface that this project uses, declared here so that neither
// NVIDIA's headers nor NVIDIA's library are needed to build it. Names and numbers are those of
// cuda.h; tests/cpp/gpu/cuda/driver_abi_test compares them with cuda.h where it is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pc::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;  // an address in the address space that GPUs and host share
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemGenericAllocationHandle = unsigned long long;

struct CUuuid {
  char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};
struct CUipcEventHandle {
  char reserved[64];
};
struct CUmemLocation {
  int type;  // CU_MEM_LOCATION_TYPE_*
  int id;
};
struct CUmemAllocationProp {
  int type;                  // CU_MEM_ALLOCATION_TYPE_*
  int requestedHandleTypes;  // CU_MEM_HANDLE_TYPE_*
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char compressionType;
  unsigned char gpuDirectRDMACapable;
  unsigned short usage;
  unsigned char reserved[4];
};
struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;  // CU_MEM_ACCESS_FLAGS_*
};

// clang-format off
enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_UNKNOWN = 999,
};

enum : int {  // CUdevice_attribute
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES = 98,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
  CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,
};

enum : int {  // CUpointer_attribute
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
};
enum : unsigned {  // CUmemorytype
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
};

enum : unsigned {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_EVENT_INTERPROCESS = 4,
  CU_STREAM_WAIT_VALUE_GEQ = 0,
  CU_STREAM_WRITE_VALUE_DEFAULT = 0,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
};
enum : int {  // CUstreamCaptureStatus, CUstreamCaptureMode
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
enum : int {  // virtual memory
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
};
// clang-format on

// Handle values of the streams that always exist.
inline CUstream legacy_stream() { return reinterpret_cast<CUstream>(uintptr_t{1}); }
inline CUstream per_thread_stream() { return reinterpret_cast<CUstream>(uintptr_t{2}); }

// The driver function that looks up all other functions. `version` selects the variant of a
// function: 12000 for the variant of CUDA 12.0.
using GetProcAddress = CUresult (*)(const char* name, void** function, int version, unsigned long long flags,
                                    int* why);
inline constexpr const char* kGetProcAddress = "cuGetProcAddress_v2";
inline constexpr int kOldestDriver = 12000;

// The functions that a driver must have: name, version of CUDA that selects the variant,
// parameters.
// clang-format off
#define PC_CUDA_REQUIRED_FUNCTIONS(X)                                                                                  \
  X(cuInit, 12000, (unsigned flags))                                                                                   \
  X(cuDriverGetVersion, 12000, (int* version))                                                                         \
  X(cuGetErrorName, 12000, (CUresult error, const char** text))                                                        \
  X(cuGetErrorString, 12000, (CUresult error, const char** text))                                                      \
  X(cuDeviceGetCount, 12000, (int* count))                                                                             \
  X(cuDeviceGet, 12000, (CUdevice* device, int ordinal))                                                               \
  X(cuDeviceGetName, 12000, (char* name, int length, CUdevice device))                                                 \
  X(cuDeviceGetPCIBusId, 12000, (char* id, int length, CUdevice device))                                               \
  X(cuDeviceGetUuid, 12000, (CUuuid* uuid, CUdevice device))                                                           \
  X(cuDeviceGetAttribute, 12000, (int* value, int attribute, CUdevice device))                                         \
  X(cuDeviceTotalMem, 12000, (std::size_t* nbytes, CUdevice device))                                                   \
  X(cuDeviceCanAccessPeer, 12000, (int* can, CUdevice device, CUdevice peer))                                          \
  X(cuDevicePrimaryCtxRetain, 12000, (CUcontext* context, CUdevice device))                                            \
  X(cuCtxGetCurrent, 12000, (CUcontext* context))                                                                      \
  X(cuCtxSetCurrent, 12000, (CUcontext context))                                                                       \
  X(cuCtxGetDevice, 12000, (CUdevice* device))                                                                         \
  X(cuCtxEnablePeerAccess, 12000, (CUcontext peer, unsigned flags))                                                    \
  X(cuMemGetInfo, 12000, (std::size_t* free, std::size_t* total))                                                      \
  X(cuMemAlloc, 12000, (CUdeviceptr* at, std::size_t nbytes))                                                          \
  X(cuMemFree, 12000, (CUdeviceptr at))                                                                                \
  X(cuMemHostAlloc, 12000, (void** at, std::size_t nbytes, unsigned flags))                                            \
  X(cuMemFreeHost, 12000, (void* at))                                                                                  \
  X(cuMemHostRegister, 12000, (void* at, std::size_t nbytes, unsigned flags))                                          \
  X(cuMemHostUnregister, 12000, (void* at))                                                                            \
  X(cuPointerGetAttributes, 12000, (unsigned count, int* attributes, void** values, CUdeviceptr at))                   \
  X(cuMemcpyHtoDAsync, 12000, (CUdeviceptr to, const void* from, std::size_t nbytes, CUstream stream))                 \
  X(cuMemcpyDtoHAsync, 12000, (void* to, CUdeviceptr from, std::size_t nbytes, CUstream stream))                       \
  X(cuMemcpyDtoDAsync, 12000, (CUdeviceptr to, CUdeviceptr from, std::size_t nbytes, CUstream stream))                 \
  X(cuMemsetD8Async, 12000, (CUdeviceptr to, unsigned char value, std::size_t nbytes, CUstream stream))                \
  X(cuStreamCreate, 12000, (CUstream* stream, unsigned flags))                                                         \
  X(cuStreamDestroy, 12000, (CUstream stream))                                                                         \
  X(cuStreamQuery, 12000, (CUstream stream))                                                                           \
  X(cuStreamWaitEvent, 12000, (CUstream stream, CUevent event, unsigned flags))                                        \
  X(cuStreamIsCapturing, 12000, (CUstream stream, int* status))                                                        \
  X(cuThreadExchangeStreamCaptureMode, 12000, (int* mode))                                                             \
  X(cuEventCreate, 12000, (CUevent* event, unsigned flags))                                                            \
  X(cuEventDestroy, 12000, (CUevent event))                                                                            \
  X(cuEventRecord, 12000, (CUevent event, CUstream stream))                                                            \
  X(cuEventQuery, 12000, (CUevent event))                                                                              \
  X(cuLibraryLoadData, 12000, (CUlibrary* library, const void* code, int* jit_options, void** jit_values,              \
    unsigned jit_count, int* options, void** values, unsigned count))                                                  \
  X(cuLibraryGetKernel, 12000, (CUkernel* kernel, CUlibrary library, const char* name))                                \
  X(cuKernelGetFunction, 12000, (CUfunction* function, CUkernel kernel))                                               \
  X(cuLaunchKernel, 12000, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
    unsigned block_y, unsigned block_z, unsigned shared_nbytes, CUstream stream, void** arguments, void** extra))

// The functions that a driver may lack: calls that need them then return kUnsupported.
#define PC_CUDA_OPTIONAL_FUNCTIONS(X)                                                                                  \
  X(cuFuncLoad, 12040, (CUfunction function))                                                                          \
  X(cuStreamGetId, 12000, (CUstream stream, unsigned long long* id))                                                   \
  X(cuStreamWriteValue32, 12000, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                    \
  X(cuStreamWaitValue32, 12000, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                     \
  X(cuStreamBeginCapture, 12000, (CUstream stream, int mode))                                                           \
  X(cuStreamEndCapture, 12000, (CUstream stream, CUgraph* graph))                                                       \
  X(cuGraphInstantiateWithFlags, 12000, (CUgraphExec* made, CUgraph graph, unsigned long long flags))                   \
  X(cuGraphLaunch, 12000, (CUgraphExec graph, CUstream stream))                                                         \
  X(cuGraphExecDestroy, 12000, (CUgraphExec graph))                                                                     \
  X(cuGraphDestroy, 12000, (CUgraph graph))                                                                             \
  X(cuIpcGetMemHandle, 12000, (CUipcMemHandle* handle, CUdeviceptr at))                                                \
  X(cuIpcOpenMemHandle, 12000, (CUdeviceptr* at, CUipcMemHandle handle, unsigned flags))                               \
  X(cuIpcCloseMemHandle, 12000, (CUdeviceptr at))                                                                      \
  X(cuIpcGetEventHandle, 12000, (CUipcEventHandle* handle, CUevent event))                                             \
  X(cuIpcOpenEventHandle, 12000, (CUevent* event, CUipcEventHandle handle))                                            \
  X(cuMemGetAllocationGranularity, 12000, (std::size_t* nbytes, const CUmemAllocationProp* what, int option))          \
  X(cuMemCreate, 12000, (CUmemGenericAllocationHandle* handle, std::size_t nbytes, const CUmemAllocationProp* what,    \
    unsigned long long flags))                                                                                         \
  X(cuMemRelease, 12000, (CUmemGenericAllocationHandle handle))                                                        \
  X(cuMemExportToShareableHandle, 12000, (void* shareable, CUmemGenericAllocationHandle handle, int type,              \
    unsigned long long flags))                                                                                         \
  X(cuMemImportFromShareableHandle, 12000, (CUmemGenericAllocationHandle* handle, void* shareable, int type))          \
  X(cuMemAddressReserve, 12000, (CUdeviceptr* at, std::size_t nbytes, std::size_t alignment, CUdeviceptr wanted,       \
    unsigned long long flags))                                                                                         \
  X(cuMemAddressFree, 12000, (CUdeviceptr at, std::size_t nbytes))                                                     \
  X(cuMemMap, 12000, (CUdeviceptr at, std::size_t nbytes, std::size_t offset, CUmemGenericAllocationHandle handle,     \
    unsigned long long flags))                                                                                         \
  X(cuMemUnmap, 12000, (CUdeviceptr at, std::size_t nbytes))                                                           \
  X(cuMemSetAccess, 12000, (CUdeviceptr at, std::size_t nbytes, const CUmemAccessDesc* access, std::size_t count))
// clang-format on

}  // namespace pc::cuda
