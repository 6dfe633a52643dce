#include "gpu/nccl/api.h"

#include <array>

#include "base/enum_order.h"

namespace pc::nccl {
namespace {

template <auto member>
constexpr Symbol symbol(std::string_view name, Version since, bool required) {
  return {name, since, required,
          [](Api& api, void* address) {
            using Function = std::remove_reference_t<decltype(api.*member)>;
            api.*member = reinterpret_cast<Function>(address);
          },
          [](const Api& api) { return api.*member != nullptr; }};
}

constexpr bool kRequired = true, kOptional = false;
constexpr Version kAlways{2, 0, 0};

// clang-format off
constexpr std::array kSymbols = {
    symbol<&Api::get_version>("ncclGetVersion", kAlways, kRequired),
    symbol<&Api::get_unique_id>("ncclGetUniqueId", kAlways, kRequired),
    symbol<&Api::get_error_string>("ncclGetErrorString", kAlways, kRequired),
    symbol<&Api::get_last_error>("ncclGetLastError", {2, 13, 4}, kRequired),
    symbol<&Api::comm_init_rank_config>("ncclCommInitRankConfig", {2, 14, 3}, kRequired),
    symbol<&Api::comm_get_async_error>("ncclCommGetAsyncError", {2, 4, 2}, kRequired),
    symbol<&Api::comm_finalize>("ncclCommFinalize", {2, 14, 3}, kRequired),
    symbol<&Api::comm_destroy>("ncclCommDestroy", kAlways, kRequired),
    symbol<&Api::comm_abort>("ncclCommAbort", {2, 4, 2}, kRequired),
    symbol<&Api::comm_split>("ncclCommSplit", {2, 18, 1}, kRequired),
    symbol<&Api::comm_shrink>("ncclCommShrink", {2, 27, 3}, kOptional),
    symbol<&Api::comm_revoke>("ncclCommRevoke", {2, 28, 7}, kOptional),
    symbol<&Api::comm_count>("ncclCommCount", kAlways, kRequired),
    symbol<&Api::comm_user_rank>("ncclCommUserRank", kAlways, kRequired),
    symbol<&Api::comm_cu_device>("ncclCommCuDevice", kAlways, kRequired),
    symbol<&Api::group_start>("ncclGroupStart", kAlways, kRequired),
    symbol<&Api::group_end>("ncclGroupEnd", kAlways, kRequired),
    symbol<&Api::all_reduce>("ncclAllReduce", kAlways, kRequired),
    symbol<&Api::broadcast>("ncclBroadcast", kAlways, kRequired),
    symbol<&Api::reduce>("ncclReduce", kAlways, kRequired),
    symbol<&Api::all_gather>("ncclAllGather", kAlways, kRequired),
    symbol<&Api::reduce_scatter>("ncclReduceScatter", kAlways, kRequired),
    symbol<&Api::all_to_all>("ncclAlltoAll", {2, 28, 3}, kOptional),
    symbol<&Api::gather>("ncclGather", {2, 28, 3}, kOptional),
    symbol<&Api::scatter>("ncclScatter", {2, 28, 3}, kOptional),
    symbol<&Api::send>("ncclSend", {2, 7, 3}, kRequired),
    symbol<&Api::recv>("ncclRecv", {2, 7, 3}, kRequired),
    symbol<&Api::red_op_create_pre_mul_sum>("ncclRedOpCreatePreMulSum", {2, 11, 4}, kRequired),
    symbol<&Api::red_op_destroy>("ncclRedOpDestroy", {2, 11, 4}, kRequired),
    symbol<&Api::mem_alloc>("ncclMemAlloc", {2, 19, 1}, kOptional),
    symbol<&Api::mem_free>("ncclMemFree", {2, 19, 1}, kOptional),
    symbol<&Api::comm_register>("ncclCommRegister", {2, 19, 1}, kOptional),
    symbol<&Api::comm_deregister>("ncclCommDeregister", {2, 19, 1}, kOptional),
    symbol<&Api::comm_window_register>("ncclCommWindowRegister", {2, 27, 3}, kOptional),
    symbol<&Api::comm_window_deregister>("ncclCommWindowDeregister", {2, 27, 3}, kOptional),
};

constexpr std::array<FeatureRow, kFeatureCount> kFeatures = {{
    {Feature::kMemory, "ncclMemAlloc and ncclCommRegister", {2, 19, 1}},
    {Feature::kGroupedAbort, "ncclCommAbort inside a group", {2, 22, 3}},
    {Feature::kFloat8, "ncclFloat8e4m3 and ncclFloat8e5m2", {2, 24, 3}},
    {Feature::kShrink, "ncclCommShrink", {2, 27, 3}},
    {Feature::kWindows, "ncclCommWindowRegister", {2, 27, 3}},
    {Feature::kName, "names of communicators", {2, 27, 3}},
    {Feature::kAlltoall, "ncclAlltoAll, ncclGather and ncclScatter", {2, 28, 3}},
    {Feature::kRevoke, "ncclCommRevoke", {2, 28, 7}},
    {Feature::kRanksShareDevice, "several ranks on one GPU", {2, 30, 3}},
}};
// clang-format on
static_assert(in_enum_order(kFeatures, &FeatureRow::feature));

constexpr std::array<std::string_view, 9> kCodes = {
    "ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
    "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
    "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};

Result<Version> version_of(ReturnCode (*get_version)(int*)) {
  if (get_version == nullptr) return unsupported("it has no symbol ncclGetVersion: that is no NCCL");
  int code = 0;
  const ReturnCode answer = get_version(&code);
  if (answer != ReturnCode::kSuccess) return unsupported("ncclGetVersion gave " + text_of(answer));
  const Version version = version_from_code(code);
  if (version >= kOldest) return version;
  return unsupported("it is NCCL " + text_of(version) + ", and at least " + text_of(kOldest) +
                     " is needed: `pip install -U nvidia-nccl-cu13` (for CUDA 12: nvidia-nccl-cu12)");
}

}  // namespace

std::span<const Symbol> symbols() { return kSymbols; }
const FeatureRow& describe(Feature feature) { return kFeatures[static_cast<std::size_t>(feature)]; }

bool Api::supports(Feature feature) const {
  if (version < describe(feature).since) return false;
  switch (feature) {
    case Feature::kMemory:
      return mem_alloc != nullptr && mem_free != nullptr && comm_register != nullptr &&
             comm_deregister != nullptr;
    case Feature::kShrink: return comm_shrink != nullptr;
    case Feature::kWindows: return comm_window_register != nullptr && comm_window_deregister != nullptr;
    case Feature::kAlltoall: return all_to_all != nullptr && gather != nullptr && scatter != nullptr;
    case Feature::kRevoke: return comm_revoke != nullptr;
    case Feature::kGroupedAbort:
    case Feature::kFloat8:
    case Feature::kName:
    case Feature::kRanksShareDevice: return true;
  }
  return false;
}

Status lacks(const Api& api, Feature feature) {
  const FeatureRow& row = describe(feature);
  return unsupported("NCCL " + text_of(api.version) + " has no " + std::string(row.name) +
                     ": that came with " + text_of(row.since) +
                     "; `pip install -U nvidia-nccl-cu13` brings a newer one");
}

Result<Api> load_api(const std::function<void*(const char* name)>& find) {
  Api api;
  kSymbols.front().put(api, find(kSymbols.front().name.data()));
  PC_ASSIGN_OR_RETURN(api.version, version_of(api.get_version));
  std::string missing;
  for (const Symbol& each : kSymbols) {
    void* const address = api.version >= each.since ? find(each.name.data()) : nullptr;
    each.put(api, address);
    if (address == nullptr && each.required)
      missing += (missing.empty() ? "" : ", ") + std::string(each.name);
  }
  if (missing.empty()) return api;
  return unsupported("it says that it is NCCL " + text_of(api.version) + " and has no " + missing);
}

std::string_view name_of(ReturnCode code) {
  const std::size_t at = static_cast<std::size_t>(code);
  return at < kCodes.size() ? kCodes[at] : "an unknown code";
}
std::string text_of(ReturnCode code) {
  return std::string(name_of(code)) + " (" + std::to_string(static_cast<int>(code)) + ")";
}

}  // namespace pc::nccl
