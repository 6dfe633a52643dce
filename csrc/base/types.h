// The basic types of the whole runtime: ranks, element types, reduction operations, views of
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/io_vec.h"

namespace pc {

using Rank = int32_t;
// As the source of a receive: a message from any rank. The value is not -1, because a program that
// counts down from its own rank may pass -1 by mistake.
inline constexpr Rank kAnyRank = INT32_MIN;
std::string rank_text(Rank rank);  // for messages: "rank 3", "any rank"

// All fixed-size element types that can be transferred; kernels/reduce.h decides which of them can
// be reduced. kOpaque is the type of elements that only the user's array library can interpret
// (records, dates, text); a Layout distinguishes kinds of them.
// clang-format off
enum class DType : uint8_t {
  kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kBF16, kF32, kF64, kC64, kC128,
  kF8E4M3FN, kF8E5M2, kOpaque,
};
// clang-format on
inline constexpr int kDTypeCount = 18;

// kMinLoc and kMaxLoc work on pairs (value, location). kScaledSum cannot be chosen by name alone,
// because it needs a factor.
// clang-format off
enum class ReduceOp : uint8_t {
  kSum, kProd, kMin, kMax, kAvg, kBAnd, kBOr, kBXor, kLAnd, kLOr, kLXor, kMinLoc, kMaxLoc,
  kScaledSum,
};
// clang-format on
inline constexpr int kReduceOpCount = 14, kNamedOpCount = 13;
constexpr bool takes_pairs(ReduceOp op) { return op == ReduceOp::kMinLoc || op == ReduceOp::kMaxLoc; }

// A reduction operation and its factor. It converts to and from ReduceOp implicitly, because most
// code has no factor.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;  // kScaledSum multiplies each rank's contribution by this factor once
  constexpr Reduction() = default;
  constexpr Reduction(ReduceOp op_, double factor_ = 1) : op(op_), factor(factor_) {}
  constexpr operator ReduceOp() const { return op; }
};

// Describes the bytes of a kOpaque array. A Layout is never destroyed, because flight records point
// to it.
struct Layout {
  std::string name;  // the array library's name: "datetime64[D]"; shortened if it is long
  std::size_t item_nbytes = 1;
  uint64_t hash = 0;      // equal on all ranks
  std::string text = {};  // the unshortened name
};

std::size_t size_of(DType dtype);       // bytes of one element
std::string_view name_of(DType dtype);  // NumPy's name: "float32", "bfloat16", ...; "bytes" for kOpaque
std::string_view name_of(ReduceOp op);  // "sum", "prod", "min", ...
std::string text_of(const Reduction& reduction);  // as name_of(), or "scaled sum x0.5"
// Texts for messages: "float32[1000]", "datetime64[D][10]". A kOpaque array is counted in items of
// its Layout, not in bytes.
std::string text_of(DType dtype, const Layout* layout);
uint64_t count_of_items(uint64_t count, const Layout* layout);
std::string array_text(DType dtype, uint64_t count, const Layout* layout);
std::optional<DType> dtype_from_name(std::string_view name);
// Accepts the names that name_of() returns, and "mean" and "add" as aliases. Never returns
// kScaledSum.
std::optional<ReduceOp> op_from_name(std::string_view name);

enum class DeviceType : uint8_t { kCpu, kCuda };
inline constexpr int16_t kUnknownGpu = -1;  // index of a Device whose number only the GPU driver knows
struct Device {
  DeviceType type = DeviceType::kCpu;
  int16_t index = 0;
};

// Buffer and ConstBuffer are views: they do not own the memory, which must outlive the call or the
// Work that uses it. If `list` is set, the view joins several arrays: `data` is null, and `list`
// has their bytes in order. Each piece of `list` holds whole elements (whole pairs if the operation
// takes pairs), and pieces that are written do not overlap.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::kU8;
  Device device = {};
  const Layout* layout = nullptr;  // kOpaque only; null: bytes of no particular kind
  const IoVec* list = nullptr;
  std::size_t nbytes() const { return count * size_of(dtype); }
};
struct ConstBuffer {
  const std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::kU8;
  Device device = {};
  const Layout* layout = nullptr;
  const IoVec* list = nullptr;  // must not be written through
  ConstBuffer() = default;
  ConstBuffer(const std::byte* data_, std::size_t count_, DType dtype_, Device device_ = {},
              const Layout* layout_ = nullptr, const IoVec* list_ = nullptr)
      : data(data_),
        count(count_),
        dtype(dtype_),
        device(device_),
        layout(layout_),
        list(list_) {}
  // Implicit, because a writable view is also a readable one.
  ConstBuffer(const Buffer& b) : ConstBuffer(b.data, b.count, b.dtype, b.device, b.layout, b.list) {}
  std::size_t nbytes() const { return count * size_of(dtype); }
};

}  // namespace pc
