#include "base/types.h"

#include <array>

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
}};
// clang-format on
constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(in_enum_order());

constexpr std::array<std::string_view, kReduceOpCount> kOps = {"sum", "prod", "min", "max", "avg"};

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].nbytes; }
std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
std::string_view name_of(ReduceOp op) { return kOps[static_cast<std::size_t>(op)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<ReduceOp> op_from_name(std::string_view name) {
  if (name == "mean") return ReduceOp::kAvg;
  if (name == "add") return ReduceOp::kSum;
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i] == name) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

}  // namespace pc
