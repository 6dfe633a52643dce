// Our declarations of NCCL's ABI against a real nccl.h. Compiled where PYCOLLECTIVE_NCCL_HEADER
// gives its path:
//   cmake --preset dev -DPYCOLLECTIVE_NCCL_HEADER=/.../nvidia/nccl/include/nccl.h
#ifdef PYCOLLECTIVE_NCCL_HEADER
#include PYCOLLECTIVE_NCCL_HEADER

#include <type_traits>

#include "gpu/nccl/api.h"

namespace pc::nccl {
namespace {

template <auto theirs, auto ours>
constexpr bool same_number = static_cast<long>(theirs) == static_cast<long>(ours);

static_assert(same_number<ncclSuccess, ReturnCode::kSuccess>);
static_assert(same_number<ncclUnhandledCudaError, ReturnCode::kUnhandledCudaError>);
static_assert(same_number<ncclSystemError, ReturnCode::kSystemError>);
static_assert(same_number<ncclInternalError, ReturnCode::kInternalError>);
static_assert(same_number<ncclInvalidArgument, ReturnCode::kInvalidArgument>);
static_assert(same_number<ncclInvalidUsage, ReturnCode::kInvalidUsage>);
static_assert(same_number<ncclRemoteError, ReturnCode::kRemoteError>);
static_assert(same_number<ncclInProgress, ReturnCode::kInProgress>);
#if NCCL_VERSION_CODE >= 23003
static_assert(same_number<ncclTimeout, ReturnCode::kTimeout>);
#endif

static_assert(same_number<ncclInt8, DataType::kInt8> && same_number<ncclUint8, DataType::kUint8>);
static_assert(same_number<ncclInt32, DataType::kInt32> && same_number<ncclUint32, DataType::kUint32>);
static_assert(same_number<ncclInt64, DataType::kInt64> && same_number<ncclUint64, DataType::kUint64>);
static_assert(same_number<ncclFloat16, DataType::kFloat16> && same_number<ncclFloat32, DataType::kFloat32>);
static_assert(same_number<ncclFloat64, DataType::kFloat64> && same_number<ncclBfloat16, DataType::kBfloat16>);
#if NCCL_VERSION_CODE >= 22403
static_assert(same_number<ncclFloat8e4m3, DataType::kFloat8E4M3>);
static_assert(same_number<ncclFloat8e5m2, DataType::kFloat8E5M2>);
#endif
static_assert(same_number<ncclSum, RedOp::kSum> && same_number<ncclProd, RedOp::kProd>);
static_assert(same_number<ncclMax, RedOp::kMax> && same_number<ncclMin, RedOp::kMin>);
static_assert(same_number<ncclAvg, RedOp::kAvg> && same_number<ncclNumOps, RedOp::kFirstOwn>);
static_assert(same_number<ncclScalarHostImmediate, ScalarResidence::kHostImmediate>);
static_assert(sizeof(ncclResult_t) == sizeof(ReturnCode) && sizeof(ncclDataType_t) == sizeof(DataType) &&
              sizeof(ncclRedOp_t) == sizeof(RedOp));

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && NCCL_SPLIT_NOCOLOR == kNoColor);
static_assert(NCCL_CONFIG_UNDEF_INT == kUndefined && NCCL_VERSION(2, 28, 9) == code_of({2, 28, 9}) &&
              NCCL_VERSION(2, 8, 4) == code_of({2, 8, 4}));

#define PC_SAME_PLACE(ours, theirs) static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs))
PC_SAME_PLACE(size, size);
PC_SAME_PLACE(magic, magic);
PC_SAME_PLACE(version, version);
PC_SAME_PLACE(blocking, blocking);
PC_SAME_PLACE(cga_cluster_size, cgaClusterSize);
PC_SAME_PLACE(min_ctas, minCTAs);
PC_SAME_PLACE(max_ctas, maxCTAs);
PC_SAME_PLACE(net_name, netName);
PC_SAME_PLACE(split_share, splitShare);
#if NCCL_VERSION_CODE >= 22703
PC_SAME_PLACE(traffic_class, trafficClass);
PC_SAME_PLACE(comm_name, commName);
PC_SAME_PLACE(collnet_enable, collnetEnable);
PC_SAME_PLACE(cta_policy, CTAPolicy);
PC_SAME_PLACE(shrink_share, shrinkShare);
PC_SAME_PLACE(nvls_ctas, nvlsCTAs);
static_assert(sizeof(ncclConfig_t) >= sizeof(Config) && NCCL_SHRINK_ABORT == kShrinkAbort);
#endif
static_assert(ncclConfig_t NCCL_CONFIG_INITIALIZER.magic == kConfigMagic);

// Maps NCCL's pointers, integers and enums to ours.
template <class T>
struct AsOurs {
  using Type = std::conditional_t<
      std::is_pointer_v<T>, void*,
      std::conditional_t<std::is_enum_v<T>, int, std::conditional_t<std::is_class_v<T>, UniqueId, T>>>;
};
template <class F>
struct Shape;
template <class R, class... A>
struct Shape<R (*)(A...)> {
  using Type = typename AsOurs<R>::Type (*)(typename AsOurs<A>::Type...);
};
template <auto member, class Theirs>
constexpr bool same_call =
    std::is_same_v<typename Shape<std::remove_reference_t<decltype(std::declval<Api&>().*member)>>::Type,
                   typename Shape<std::decay_t<Theirs>>::Type>;

#define PC_SAME_CALL(ours, theirs) static_assert(same_call<&Api::ours, decltype(theirs)>)
PC_SAME_CALL(get_version, ncclGetVersion);
PC_SAME_CALL(get_unique_id, ncclGetUniqueId);
PC_SAME_CALL(get_error_string, ncclGetErrorString);
PC_SAME_CALL(get_last_error, ncclGetLastError);
PC_SAME_CALL(comm_init_rank_config, ncclCommInitRankConfig);
PC_SAME_CALL(comm_get_async_error, ncclCommGetAsyncError);
PC_SAME_CALL(comm_finalize, ncclCommFinalize);
PC_SAME_CALL(comm_destroy, ncclCommDestroy);
PC_SAME_CALL(comm_abort, ncclCommAbort);
PC_SAME_CALL(comm_split, ncclCommSplit);
PC_SAME_CALL(comm_count, ncclCommCount);
PC_SAME_CALL(comm_user_rank, ncclCommUserRank);
PC_SAME_CALL(comm_cu_device, ncclCommCuDevice);
PC_SAME_CALL(group_start, ncclGroupStart);
PC_SAME_CALL(group_end, ncclGroupEnd);
PC_SAME_CALL(all_reduce, ncclAllReduce);
PC_SAME_CALL(broadcast, ncclBroadcast);
PC_SAME_CALL(reduce, ncclReduce);
PC_SAME_CALL(all_gather, ncclAllGather);
PC_SAME_CALL(reduce_scatter, ncclReduceScatter);
PC_SAME_CALL(send, ncclSend);
PC_SAME_CALL(recv, ncclRecv);
PC_SAME_CALL(red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum);
PC_SAME_CALL(red_op_destroy, ncclRedOpDestroy);
#if NCCL_VERSION_CODE >= 21901
PC_SAME_CALL(mem_alloc, ncclMemAlloc);
PC_SAME_CALL(mem_free, ncclMemFree);
PC_SAME_CALL(comm_register, ncclCommRegister);
PC_SAME_CALL(comm_deregister, ncclCommDeregister);
#endif
#if NCCL_VERSION_CODE >= 22703
PC_SAME_CALL(comm_shrink, ncclCommShrink);
PC_SAME_CALL(comm_window_register, ncclCommWindowRegister);
PC_SAME_CALL(comm_window_deregister, ncclCommWindowDeregister);
#endif
#if NCCL_VERSION_CODE >= 22807
PC_SAME_CALL(all_to_all, ncclAlltoAll);
PC_SAME_CALL(gather, ncclGather);
PC_SAME_CALL(scatter, ncclScatter);
PC_SAME_CALL(comm_revoke, ncclCommRevoke);
#endif

}  // namespace
}  // namespace pc::nccl
#endif
