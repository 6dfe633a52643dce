#include "base/types.h"

#include <array>
#include <charconv>

#include "base/enum_order.h"

namespace pc {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t nbytes;
};
// clang-format off
constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {{
    {DType::kBool, "bool", 1},        {DType::kU8, "uint8", 1},      {DType::kI8, "int8", 1},
    {DType::kU16, "uint16", 2},       {DType::kI16, "int16", 2},     {DType::kU32, "uint32", 4},
    {DType::kI32, "int32", 4},        {DType::kU64, "uint64", 8},    {DType::kI64, "int64", 8},
    {DType::kF16, "float16", 2},      {DType::kBF16, "bfloat16", 2}, {DType::kF32, "float32", 4},
    {DType::kF64, "float64", 8},      {DType::kC64, "complex64", 8}, {DType::kC128, "complex128", 16},
    {DType::kF8E4M3FN, "float8_e4m3fn", 1}, {DType::kF8E5M2, "float8_e5m2", 1}, {DType::kOpaque, "bytes", 1},
}};
// clang-format on
static_assert(in_enum_order(kDTypes, &DTypeRow::dtype));

constexpr std::array<std::string_view, kReduceOpCount> kOps = {"sum",  "prod",   "min",    "max",       "avg",
                                                               "band", "bor",    "bxor",   "land",      "lor",
                                                               "lxor", "minloc", "maxloc", "scaled sum"};
static_assert(kOps.back() == "scaled sum");

}  // namespace

std::string rank_text(Rank rank) { return rank == kAnyRank ? "any rank" : "rank " + std::to_string(rank); }

std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].nbytes; }
std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
std::string_view name_of(ReduceOp op) { return kOps[static_cast<std::size_t>(op)]; }

std::string text_of(const Reduction& reduction) {
  std::string text(name_of(reduction.op));
  if (reduction.op != ReduceOp::kScaledSum) return text;
  std::array<char, 32> digits;  // the fewest digits that parse to the same number
  const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), reduction.factor).ptr;
  return text + " x" + std::string(static_cast<const char*>(digits.data()), end);
}

std::string text_of(DType dtype, const Layout* layout) {
  return dtype == DType::kOpaque && layout != nullptr ? layout->name : std::string(name_of(dtype));
}

uint64_t count_of_items(uint64_t count, const Layout* layout) {
  return layout != nullptr && layout->item_nbytes != 0 ? count / layout->item_nbytes : count;
}

std::string array_text(DType dtype, uint64_t count, const Layout* layout) {
  return text_of(dtype, layout) + "[" + std::to_string(count_of_items(count, layout)) + "]";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<ReduceOp> op_from_name(std::string_view name) {
  if (name == "mean") return ReduceOp::kAvg;
  if (name == "add") return ReduceOp::kSum;
  for (std::size_t i = 0; i < kNamedOpCount; ++i) {
    if (kOps[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

}  // namespace pc
