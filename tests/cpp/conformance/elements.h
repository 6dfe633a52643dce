// Arrays of any dtype with small whole numbers in them, so that every result is exact and known.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/types.h"

namespace pc::testing {

struct Elements {
  DType dtype = DType::kF32;
  std::size_t count = 0;
  std::vector<std::byte> bytes;
  ConstBuffer view() const { return {bytes.data(), count, dtype}; }
  Buffer buffer() { return {bytes.data(), count, dtype}; }
};

inline uint16_t half_of(double value) {  // exact for what float16 can hold and is not subnormal
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // 0.5 <= fraction < 1
  const unsigned mantissa = static_cast<unsigned>(fraction * 2048) & 0x3ff;
  return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) | static_cast<unsigned>(exponent + 14) << 10 |
                               mantissa);
}
inline double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = (bits & 0x3ff) / 1024.0;
  const double size = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -size : size;
}

template <class T>
void put(Elements& e, std::size_t i, T value) {
  std::memcpy(e.bytes.data() + i * size_of(e.dtype), &value, sizeof value);
}
template <class T>
T get(const Elements& e, std::size_t i) {
  T value;
  std::memcpy(&value, e.bytes.data() + i * size_of(e.dtype), sizeof value);
  return value;
}

// Integers wrap as the kernels do; complex numbers get a real part only.
inline void store(Elements& e, std::size_t i, double value) {
  const int64_t whole = static_cast<int64_t>(value);
  switch (e.dtype) {
    case DType::kBool: return put(e, i, static_cast<uint8_t>(whole != 0));
    case DType::kU8:
    case DType::kI8: return put(e, i, static_cast<uint8_t>(whole));
    case DType::kU16:
    case DType::kI16: return put(e, i, static_cast<uint16_t>(whole));
    case DType::kU32:
    case DType::kI32: return put(e, i, static_cast<uint32_t>(whole));
    case DType::kU64:
    case DType::kI64: return put(e, i, whole);
    case DType::kF16: return put(e, i, half_of(value));
    case DType::kBF16:
      return put(e, i, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    case DType::kF32:
    case DType::kC64: return put(e, i, static_cast<float>(value));
    case DType::kF64:
    case DType::kC128: return put(e, i, value);
  }
}
inline double load_16_bit(const Elements& e, std::size_t i) {
  const uint16_t bits = get<uint16_t>(e, i);
  return e.dtype == DType::kF16 ? half_value(bits)
                                : double{std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)};
}

inline Elements filled(DType dtype, std::size_t count, std::byte with) {
  return {dtype, count, std::vector<std::byte>(count * size_of(dtype), with)};
}
inline Elements garbage(DType dtype, std::size_t count) { return filled(dtype, count, std::byte{0x5a}); }

// 1 or 2, differing from rank to rank and from element to element: products of 8 ranks fit everywhere but in 8 bits.
inline double value_of(std::size_t i, Rank rank) {
  return 1 + static_cast<double>((i / 3 + i + static_cast<std::size_t>(rank)) % 2);
}

inline Elements contribution(DType dtype, std::size_t count, Rank rank, Rank /*size*/) {
  Elements e = filled(dtype, count, std::byte{0});
  for (std::size_t i = 0; i < count; ++i) store(e, i, value_of(i, rank));
  return e;
}

inline Elements reduced(DType dtype, ReduceOp op, std::size_t count, Rank size) {
  Elements e = filled(dtype, count, std::byte{0});
  for (std::size_t i = 0; i < count; ++i) {
    double all = value_of(i, 0);
    for (Rank r = 1; r < size; ++r) {
      const double v = value_of(i, r);
      switch (op) {
        case ReduceOp::kSum:
        case ReduceOp::kAvg: all += v; break;
        case ReduceOp::kProd: all *= v; break;
        case ReduceOp::kMin: all = std::fmin(all, v); break;
        case ReduceOp::kMax: all = std::fmax(all, v); break;
      }
    }
    // As the kernels do: a float divided once is the correctly rounded quotient.
    if (op == ReduceOp::kAvg && dtype == DType::kF32)
      all = static_cast<float>(all) / static_cast<float>(size);
    else if (op == ReduceOp::kAvg)
      all /= size;
    store(e, i, all);
  }
  return e;
}

// `count` if they are equal. The mean of 16-bit floats is a running one and may be off by a rounding per rank.
inline std::size_t first_difference(const Elements& got, const Elements& want, bool mean) {
  const bool is_16_bit = got.dtype == DType::kF16 || got.dtype == DType::kBF16;
  const std::size_t width = size_of(got.dtype);
  for (std::size_t i = 0; i < want.count; ++i) {
    if (std::memcmp(got.bytes.data() + i * width, want.bytes.data() + i * width, width) == 0) continue;
    const double allowed = got.dtype == DType::kF16 ? 1.0 / 256 : 1.0 / 32;
    if (mean && is_16_bit && std::abs(load_16_bit(got, i) - load_16_bit(want, i)) <= allowed) continue;
    return i;
  }
  return want.count;
}

}  // namespace pc::testing
