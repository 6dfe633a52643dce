// The functions of one NCCL library, as a table of pointers. Whether a library has a feature is
// decided by the function's pointer and by the version that the library reports, because a function
// may exist before it works as documented.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "gpu/nccl/abi.h"
#include "gpu/nccl/version.h"

namespace pc::nccl {

// Features that not every library from 2.18 on has.
enum class Feature : uint8_t {
  kMemory,           // 2.19.1: NCCL's own allocator, explicitly registered buffers
  kGroupedAbort,     // 2.22.3: several communicators aborted in one group
  kFloat8,           // 2.24.3
  kShrink,           // 2.27.3: a communicator without the failed ranks
  kWindows,          // 2.27.3
  kName,             // 2.27.3: a communicator's name, in NCCL's log
  kAlltoall,         // 2.28.3: alltoall, gather and scatter as separate calls
  kRevoke,           // 2.28.7
  kRanksShareDevice  // 2.30.3: several ranks on one GPU, if NCCL_MULTI_RANK_GPU_ENABLE=1
};
inline constexpr int kFeatureCount = 9;

// A plain struct, so that a test can replace any function. A pointer is null if this library lacks
// the function. Thread-safety: written once, then only read.
struct Api {
  Version version;

  ReturnCode (*get_version)(int*) = nullptr;
  ReturnCode (*get_unique_id)(UniqueId*) = nullptr;
  const char* (*get_error_string)(ReturnCode) = nullptr;
  const char* (*get_last_error)(CommHandle) = nullptr;

  ReturnCode (*comm_init_rank_config)(CommHandle*, int ranks, UniqueId, int rank, void* config) = nullptr;
  ReturnCode (*comm_get_async_error)(CommHandle, ReturnCode*) = nullptr;
  ReturnCode (*comm_finalize)(CommHandle) = nullptr;
  ReturnCode (*comm_destroy)(CommHandle) = nullptr;
  ReturnCode (*comm_abort)(CommHandle) = nullptr;
  ReturnCode (*comm_split)(CommHandle, int color, int key, CommHandle*, void* config) = nullptr;
  ReturnCode (*comm_shrink)(CommHandle, int* exclude, int count, CommHandle*, void* config,
                            int flags) = nullptr;
  ReturnCode (*comm_revoke)(CommHandle, int flags) = nullptr;
  ReturnCode (*comm_count)(CommHandle, int*) = nullptr;
  ReturnCode (*comm_user_rank)(CommHandle, int*) = nullptr;
  ReturnCode (*comm_cu_device)(CommHandle, int*) = nullptr;

  ReturnCode (*group_start)() = nullptr;
  ReturnCode (*group_end)() = nullptr;

  ReturnCode (*all_reduce)(const void*, void*, std::size_t count, DataType, RedOp, CommHandle,
                           StreamHandle) = nullptr;
  ReturnCode (*broadcast)(const void*, void*, std::size_t count, DataType, int root, CommHandle,
                          StreamHandle) = nullptr;
  ReturnCode (*reduce)(const void*, void*, std::size_t count, DataType, RedOp, int root, CommHandle,
                       StreamHandle) = nullptr;
  // In the functions from all_gather to scatter, `count` is the number of elements in the part of
  // one rank.
  ReturnCode (*all_gather)(const void*, void*, std::size_t count, DataType, CommHandle,
                           StreamHandle) = nullptr;
  ReturnCode (*reduce_scatter)(const void*, void*, std::size_t count, DataType, RedOp, CommHandle,
                               StreamHandle) = nullptr;
  ReturnCode (*all_to_all)(const void*, void*, std::size_t count, DataType, CommHandle,
                           StreamHandle) = nullptr;
  ReturnCode (*gather)(const void*, void*, std::size_t count, DataType, int root, CommHandle,
                       StreamHandle) = nullptr;
  ReturnCode (*scatter)(const void*, void*, std::size_t count, DataType, int root, CommHandle,
                        StreamHandle) = nullptr;
  ReturnCode (*send)(const void*, std::size_t count, DataType, int peer, CommHandle, StreamHandle) = nullptr;
  ReturnCode (*recv)(void*, std::size_t count, DataType, int peer, CommHandle, StreamHandle) = nullptr;

  // Creates an operation for one communicator. It must be destroyed before that communicator.
  ReturnCode (*red_op_create_pre_mul_sum)(RedOp*, void* scalar, DataType, ScalarResidence,
                                          CommHandle) = nullptr;
  ReturnCode (*red_op_destroy)(RedOp, CommHandle) = nullptr;

  ReturnCode (*mem_alloc)(void**, std::size_t nbytes) = nullptr;
  ReturnCode (*mem_free)(void*) = nullptr;
  ReturnCode (*comm_register)(CommHandle, void*, std::size_t nbytes, void** handle) = nullptr;
  ReturnCode (*comm_deregister)(CommHandle, void* handle) = nullptr;
  ReturnCode (*comm_window_register)(CommHandle, void*, std::size_t nbytes, void** window,
                                     int flags) = nullptr;
  ReturnCode (*comm_window_deregister)(CommHandle, void* window) = nullptr;

  bool supports(Feature feature) const;
};

// One row of the table from which the functions are loaded.
struct Symbol {
  std::string_view name;  // null-terminated
  Version since;
  bool required;  // if false, a library may lack it
  void (*put)(Api&, void* address);
  bool (*has)(const Api&);
};
std::span<const Symbol> symbols();

struct FeatureRow {
  Feature feature;
  std::string_view name;  // for messages: "ncclCommShrink"
  Version since;
};
const FeatureRow& describe(Feature feature);
// Returns an error such as "NCCL 2.19.3 has no ncclCommShrink: that came with 2.27.3; `pip install
// -U nvidia-nccl-cu13` brings a newer one".
Status lacks(const Api& api, Feature feature);

// Fills the table. `find` looks up a symbol by its name (dlsym, or a test). Returns kUnsupported if
// the library is no NCCL, is too old, or lacks a function that every NCCL of its version has.
Result<Api> load_api(const std::function<void*(const char* name)>& find);

std::string_view name_of(ReturnCode code);  // "ncclSystemError"; "an unknown code" for any other number
std::string text_of(ReturnCode code);       // "ncclSystemError (2)"

}  // namespace pc::nccl
