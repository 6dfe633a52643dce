// Our declarations of the driver match NVIDIA's header, where this machine has one.
#include "gpu/cuda/driver_abi.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace pc::cuda {
namespace {

#define DECLARE_TYPE(name, since, parameters) using Our_##name = CUresult parameters;
PC_CUDA_REQUIRED_FUNCTIONS(DECLARE_TYPE)
PC_CUDA_OPTIONAL_FUNCTIONS(DECLARE_TYPE)
#undef DECLARE_TYPE

}  // namespace
}  // namespace pc::cuda

#if __has_include(<cuda.h>)
#include <cuda.h>  // last: it renames functions by macros

#if CUDA_VERSION >= 12040  // older headers lack some functions
namespace pc::cuda {
namespace {

// An enumeration is passed as an integer of its size, and all pointers are passed alike.
template <class A, class B>
constexpr bool passed_alike() {
  const bool numbers =
      (std::is_integral_v<A> || std::is_enum_v<A>)&&(std::is_integral_v<B> || std::is_enum_v<B>);
  const bool pointers = std::is_pointer_v<A> && std::is_pointer_v<B>;
  const bool structs = std::is_class_v<A> && std::is_class_v<B> && alignof(A) == alignof(B);
  return sizeof(A) == sizeof(B) && (numbers || pointers || structs);
}
template <class A, class B>
struct Alike : std::false_type {};
template <class R, class S, class... A, class... B>
requires(sizeof...(A) == sizeof...(B)) struct Alike<R(A...), S(B...)>
    : std::bool_constant<passed_alike<R, S>() && (true && ... && passed_alike<A, B>())> {
};

TEST(DriverAbi, functions_take_what_nvidias_header_says) {
#define COMPARE(name, since, parameters) \
  EXPECT_TRUE((Alike<Our_##name, std::remove_pointer_t<decltype(&::name)>>::value)) << #name;
  PC_CUDA_REQUIRED_FUNCTIONS(COMPARE)
  PC_CUDA_OPTIONAL_FUNCTIONS(COMPARE)
#undef COMPARE
}

TEST(DriverAbi, structs_lie_in_memory_as_nvidias_do) {
  static_assert(sizeof(pc::cuda::CUuuid) == sizeof(::CUuuid));
  static_assert(sizeof(pc::cuda::CUipcMemHandle) == sizeof(::CUipcMemHandle));
  static_assert(sizeof(pc::cuda::CUipcEventHandle) == sizeof(::CUipcEventHandle));
  using Ours = pc::cuda::CUmemAllocationProp;
  using Theirs = ::CUmemAllocationProp;
  static_assert(sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs));
  static_assert(offsetof(Ours, requestedHandleTypes) == offsetof(Theirs, requestedHandleTypes));
  static_assert(offsetof(Ours, location) == offsetof(Theirs, location));
  static_assert(offsetof(Ours, win32HandleMetaData) == offsetof(Theirs, win32HandleMetaData));
  static_assert(offsetof(Ours, compressionType) == offsetof(Theirs, allocFlags));
  static_assert(sizeof(pc::cuda::CUmemLocation) == sizeof(::CUmemLocation));
  static_assert(sizeof(pc::cuda::CUmemAccessDesc) == sizeof(::CUmemAccessDesc));
  static_assert(offsetof(pc::cuda::CUmemAccessDesc, flags) == offsetof(::CUmemAccessDesc, flags));
}

TEST(DriverAbi, numbers_are_nvidias) {
// cuda.h defines some as macros, which would hide ours: those are compared below.
#define SAME(name) EXPECT_EQ(static_cast<long>(pc::cuda::name), static_cast<long>(::name))
  SAME(CUDA_ERROR_OUT_OF_MEMORY);
  SAME(CUDA_ERROR_NOT_INITIALIZED);
  SAME(CUDA_ERROR_DEINITIALIZED);
  SAME(CUDA_ERROR_STUB_LIBRARY);
  SAME(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
  SAME(CUDA_ERROR_DEVICE_UNAVAILABLE);
  SAME(CUDA_ERROR_NO_DEVICE);
  SAME(CUDA_ERROR_INVALID_DEVICE);
  SAME(CUDA_ERROR_INVALID_IMAGE);
  SAME(CUDA_ERROR_INVALID_CONTEXT);
  SAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
  SAME(CUDA_ERROR_ECC_UNCORRECTABLE);
  SAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  SAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  SAME(CUDA_ERROR_INVALID_HANDLE);
  SAME(CUDA_ERROR_NOT_FOUND);
  SAME(CUDA_ERROR_NOT_READY);
  SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
  SAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  SAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  SAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  SAME(CUDA_ERROR_LAUNCH_FAILED);
  SAME(CUDA_ERROR_NOT_PERMITTED);
  SAME(CUDA_ERROR_NOT_SUPPORTED);
  SAME(CUDA_ERROR_SYSTEM_NOT_READY);
  SAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  SAME(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
  SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  SAME(CUDA_ERROR_CAPTURED_EVENT);
  SAME(CUDA_ERROR_UNKNOWN);
  SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  SAME(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  SAME(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
  SAME(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  SAME(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  SAME(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  SAME(CU_POINTER_ATTRIBUTE_CONTEXT);
  SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  SAME(CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
  SAME(CU_POINTER_ATTRIBUTE_BUFFER_ID);
  SAME(CU_POINTER_ATTRIBUTE_IS_MANAGED);
  SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  SAME(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
  SAME(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  SAME(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  SAME(CU_MEMORYTYPE_HOST);
  SAME(CU_MEMORYTYPE_DEVICE);
  SAME(CU_STREAM_NON_BLOCKING);
  SAME(CU_EVENT_DISABLE_TIMING);
  SAME(CU_EVENT_INTERPROCESS);
  SAME(CU_STREAM_WAIT_VALUE_GEQ);
  SAME(CU_STREAM_WRITE_VALUE_DEFAULT);
  SAME(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE);
  SAME(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
  SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
  SAME(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  SAME(CU_MEM_LOCATION_TYPE_DEVICE);
  SAME(CU_MEM_ALLOCATION_TYPE_PINNED);
  SAME(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  SAME(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
#undef SAME
  static_assert(CU_MEMHOSTALLOC_PORTABLE == 1 && CU_MEMHOSTREGISTER_PORTABLE == 1);
  EXPECT_EQ(static_cast<void*>(legacy_stream()), static_cast<void*>(CU_STREAM_LEGACY));
  EXPECT_EQ(static_cast<void*>(per_thread_stream()), static_cast<void*>(CU_STREAM_PER_THREAD));
}

}  // namespace
}  // namespace pc::cuda
#endif
#endif
