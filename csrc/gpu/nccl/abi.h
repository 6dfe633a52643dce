// The part of NCCL's C ABI that this project uses: the structs and numbers of nccl.h from 2.18 on.
// They are declared here, because NCCL's own header needs CUDA's headers, and because a library
// found at run time may differ in version from any header. tests/cpp/gpu/nccl/abi_against_header.cc
// compares them with a real header.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pc::nccl {

struct Comm;                 // opaque, NCCL's own
using CommHandle = Comm*;    // ncclComm_t
using StreamHandle = void*;  // cudaStream_t, CUstream

struct UniqueId {
  char bytes[128];
};
static_assert(sizeof(UniqueId) == 128 && std::is_trivially_copyable_v<UniqueId>);

// ncclResult_t. The library may return numbers that are newer than these.
enum class ReturnCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,  // since 2.30.3
};

// ncclDataType_t. It has no 16-bit integer, bool or complex type.
enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,  // since 2.24.3
  kFloat8E5M2 = 11,
};

// ncclRedOp_t. Numbers from kFirstOwn on are operations created for one communicator. Max comes
// before min.
enum class RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kFirstOwn = 5 };

// ncclScalarResidence_t
enum class ScalarResidence : int { kDevice = 0, kHostImmediate = 1 };

inline constexpr int kNoColor = -1;     // NCCL_SPLIT_NOCOLOR
inline constexpr int kShrinkAbort = 1;  // NCCL_SHRINK_ABORT: ends the operations of the parent first

// ncclConfig_t as of 2.18. A library reads the first `size` bytes, but no more than it knows, and
// resets fields that are newer than `version`. So this struct serves every library from 2.18 on.
// Note that 2.26 put trafficClass at offset 44, which is padding in this struct. Only `version`
// 21800 keeps a newer library from reading the indeterminate bytes there.
struct ConfigPrefix {
  std::size_t size;
  uint32_t magic;
  uint32_t version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
};
static_assert(sizeof(ConfigPrefix) == 48 && offsetof(ConfigPrefix, blocking) == 16 &&
              offsetof(ConfigPrefix, net_name) == 32 && offsetof(ConfigPrefix, split_share) == 40);

// ncclConfig_t as of 2.27, for libraries that are at least that new.
struct Config {
  std::size_t size;
  uint32_t magic;
  uint32_t version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  int traffic_class;  // since 2.26.2
  // this and the following fields: since 2.27.3. NCCL keeps the pointer: it must stay valid as
  // long as the communicator
  const char* comm_name;
  int collnet_enable;
  int cta_policy;
  int shrink_share;
  int nvls_ctas;
};
static_assert(sizeof(Config) == 72 && offsetof(Config, split_share) == offsetof(ConfigPrefix, split_share));
static_assert(offsetof(Config, traffic_class) == 44 &&
              offsetof(Config, traffic_class) < sizeof(ConfigPrefix));
static_assert(offsetof(Config, comm_name) == 48 && offsetof(Config, collnet_enable) == 56 &&
              offsetof(Config, cta_policy) == 60 && offsetof(Config, shrink_share) == 64 &&
              offsetof(Config, nvls_ctas) == 68);

inline constexpr uint32_t kConfigMagic = 0xcafebeef;
inline constexpr int kUndefined = INT_MIN;  // NCCL_CONFIG_UNDEF_INT: NCCL decides
inline constexpr int kPrefixVersion = 21800, kConfigVersion = 22700;

// Returns a configuration in which NCCL decides every option but `blocking`. For a library older
// than 2.27, `size` covers only ConfigPrefix, so that the library reads nothing beyond it.
constexpr Config unset_config(int library_version, bool blocking) {
  const bool whole = library_version >= kConfigVersion;
  return {whole ? sizeof(Config) : sizeof(ConfigPrefix),
          kConfigMagic,
          static_cast<uint32_t>(whole ? kConfigVersion : kPrefixVersion),
          blocking ? 1 : 0,
          kUndefined,
          kUndefined,
          kUndefined,
          nullptr,
          kUndefined,
          kUndefined,
          nullptr,
          kUndefined,
          kUndefined,
          kUndefined,
          kUndefined};
}

}  // namespace pc::nccl
