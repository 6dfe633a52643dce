// Control of the fake CUDA driver (fake_cuda.cc), which is loaded like the real driver. Include
// "gpu/cuda/driver_abi.h" for types only.
//
//   const FakeCuda& fake = FakeCuda::at(FAKE_CUDA);   // the path, from CMake
//   fake.reset();                                     // before and after every test
//   fake.fail_next("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

// How a kernel was launched.
struct FakeLaunch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_nbytes;
};
// Runs a kernel, once for a whole launch, in the thread of the stream. arguments[i] points to the
// i-th argument.
using FakeKernel = void (*)(void** arguments, const FakeLaunch* launch);

// The functions that the fake exports as fake_cuda_<name>: result, name, parameters.
// clang-format off
#define FAKE_CUDA_CONTROLS(X)                                                                                        \
  /* Resets: no streams (queued work is dropped), no memory, one GPU, version 13.0, nothing fails or is hidden. */   \
  X(void, reset, ())                                                                                                 \
  X(void, set_init_result, (int result))                                                                             \
  X(void, set_version, (int version))                                                                                \
  X(void, set_device_count, (int count))                                                                             \
  X(void, set_attribute, (int attribute, int value))                                                                 \
  X(void, set_memory, (std::size_t nbytes_of_each_gpu))                                                              \
  X(void, set_peer_access, (int can))                                                                                \
  X(void, hide, (const char* function))  /* removes a function from the driver; by the name without _v2 */           \
  X(void, fail_next, (const char* function, int result))                                                             \
  X(void, fail_after, (const char* function, int good_calls, int result))                                            \
  X(void, break_contexts, (int result))  /* from now on every call that needs a context returns this */              \
  X(int, calls, (const char* function))  /* the number of calls. "pageable": copies of memory that is not pinned */  \
  /* How many exist: device pinned registered managed mapped peer handle stream event; nullptr: of all kinds */      \
  X(int, live, (const char* what))                                                                                   \
  X(void, hold_stream, (void* stream))    /* null handles mean the current context's default stream */               \
  X(void, release_stream, (void* stream))                                                                            \
  X(void, hold_new_streams, (int hold))   /* new streams are held */                                                 \
  X(void, hold_queries, (int hold))       /* cuEventQuery blocks meanwhile, as behind a full queue of launches */    \
  X(int, held_queries, ())                                                                                           \
  X(void, step, (void* stream, int operations))  /* runs so many in a held stream, and waits for them */             \
  X(int, queued, (void* stream))          /* operations that have not completed */                                   \
  X(void, drain, (void* stream))          /* waits until there are none: never for a held one */                     \
  X(void, drain_device, (int ordinal))                                                                               \
  X(void, drain_all, ())                                                                                             \
  /* An external operation: `run` is called as soon as `ready` returns 1, `drop` when it never runs again. */        \
  /* `ready` is called with the driver's mutex held. Returns 1 if the operation was captured: every replay of the */ \
  /* graph runs it. Returns -1 if there is no such stream. */                                                        \
  X(int, enqueue, (void* stream, int (*ready)(void*), void (*run)(void*), void (*drop)(void*), void* data))          \
  X(void, begin_capture, (void* stream))  /* in the global mode, by this thread */                                   \
  X(int, capture_status, (void* stream))                                                                             \
  X(int, end_capture, (void* stream))     /* returns the graph's number of operations; -1 if it was invalidated */   \
  X(void, replay, (void* stream))         /* queues the operations of the last capture of this stream */             \
  X(void*, make_managed, (std::size_t nbytes))                                                                       \
  X(void*, make_pooled, (std::size_t nbytes))  /* device memory without handle or context, as cudaMallocAsync's */   \
  X(void, adopt, (void* memory, std::size_t nbytes))  /* host memory, as if it were of this thread's GPU */          \
  /* A kernel that cuLibraryGetKernel finds. Arguments are copied at the launch, so their sizes must be known. */    \
  X(void, set_kernel, (const char* name, FakeKernel kernel, const std::size_t* argument_sizes, int arguments))
// clang-format on

struct FakeCuda {
#define FAKE_CUDA_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  FAKE_CUDA_CONTROLS(FAKE_CUDA_MEMBER)
#undef FAKE_CUDA_MEMBER

  // The library is never closed, like the driver. All members are null if there is no such library.
  static FakeCuda at(const char* path) {
    FakeCuda fake;
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fake;
#define FAKE_CUDA_FIND(result, name, parameters) \
  fake.name = reinterpret_cast<decltype(fake.name)>(::dlsym(library, "fake_cuda_" #name));
    FAKE_CUDA_CONTROLS(FAKE_CUDA_FIND)
#undef FAKE_CUDA_FIND
    return fake;
  }
};
