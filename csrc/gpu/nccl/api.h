// The functions of one NCCL library, as a table of pointers. Which of them a library has is decided twice: by the symbol, and
// by the version that it says it is, because a symbol may be there before it does what its documentation says.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "gpu/nccl/abi.h"
#include "gpu/nccl/version.h"

namespace pc::nccl {

// What not every library from 2.18 on has.
enum class Feature : uint8_t {
  kMemory,           // 2.19.1: memory of its own, buffers registered by hand
  kGroupedAbort,     // 2.22.3: several communicators aborted in one group
  kFloat8,           // 2.24.3
  kShrink,           // 2.27.3: a communicator without the dead
  kWindows,          // 2.27.3
  kName,             // 2.27.3: a communicator's name, in NCCL's own log
  kAlltoall,         // 2.28.3: alltoall, gather and scatter as calls of their own
  kRevoke,           // 2.28.7
  kRanksShareDevice  // 2.30.3: several ranks on one GPU, if NCCL_MULTI_RANK_GPU_ENABLE=1 says so
};
inline constexpr int kFeatureCount = 9;

// A plain struct, so that a test can put a function of its own in any place. Thread-safety: written once, then only read.
// Null: this library does not have it.
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
  // The count is that of one rank's part, here and in all that follow.
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

  // An operation of one communicator; destroyed before that.
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

// One row of the table that the functions are taken from.
struct Symbol {
  std::string_view name;  // ends in a zero byte
  Version since;
  bool required;  // the others may be missing
  void (*put)(Api&, void* address);
  bool (*has)(const Api&);
};
std::span<const Symbol> symbols();

struct FeatureRow {
  Feature feature;
  std::string_view name;  // "ncclCommShrink": for messages
  Version since;
};
const FeatureRow& describe(Feature feature);
// "NCCL 2.19.3 has no ncclCommShrink: it came with 2.27.3. `pip install -U nvidia-nccl-cu13` brings a newer one".
Status lacks(const Api& api, Feature feature);

// Fills the table from whatever finds a symbol by its name (dlsym, a test). kUnsupported: it is no NCCL, too old, or lacks
// what every version of that number has.
Result<Api> load_api(const std::function<void*(const char* name)>& find);

std::string_view name_of(ReturnCode code);  // "ncclSystemError"; "an unknown code"
std::string text_of(ReturnCode code);       // "ncclSystemError (2)"

}  // namespace pc::nccl
