// The words of the whole runtime: ranks, element types, reduction operations, views of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pc {

using Rank = int32_t;

// Every fixed-size element that can be moved. What can be reduced is decided by kernels/reduce.h.
// clang-format off
enum class DType : uint8_t {
  kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kBF16, kF32, kF64, kC64, kC128,
};
// clang-format on
inline constexpr int kDTypeCount = 15;

enum class ReduceOp : uint8_t { kSum, kProd, kMin, kMax, kAvg };
inline constexpr int kReduceOpCount = 5;

std::size_t size_of(DType dtype);       // bytes of one element
std::string_view name_of(DType dtype);  // NumPy's name: "float32", "bfloat16", ...
std::string_view name_of(ReduceOp op);  // "sum", "prod", "min", "max", "avg"
std::optional<DType> dtype_from_name(std::string_view name);
std::optional<ReduceOp> op_from_name(std::string_view name);  // accepts the aliases "mean" and "add"

enum class DeviceType : uint8_t { kCpu, kCuda };
struct Device {
  DeviceType type = DeviceType::kCpu;
  int16_t index = 0;
};

// Views. They never own; the memory must outlive the call or the Work that uses it.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::kU8;
  Device device = {};
  std::size_t nbytes() const { return count * size_of(dtype); }
};
struct ConstBuffer {
  const std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::kU8;
  Device device = {};
  ConstBuffer() = default;
  ConstBuffer(const std::byte* data_, std::size_t count_, DType dtype_, Device device_ = {})
      : data(data_),
        count(count_),
        dtype(dtype_),
        device(device_) {}
  // implicit: a view of what may be written is a view of what may be read.
  ConstBuffer(const Buffer& b) : ConstBuffer(b.data, b.count, b.dtype, b.device) {}
  std::size_t nbytes() const { return count * size_of(dtype); }
};

}  // namespace pc
