// Arrays of any dtype that hold small whole numbers, so that every result is exact and known.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/types.h"
#include "plan/contracts.h"

namespace pc::testing {

struct Elements {
  DType dtype = DType::kF32;
  std::size_t count = 0;
  std::vector<std::byte> bytes;
  ConstBuffer view() const { return {bytes.data(), count, dtype}; }
  Buffer buffer() { return {bytes.data(), count, dtype}; }
};

inline uint16_t half_of(double value) {  // exact for all normal float16 values
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

// Exact for 0, 1 and the values between them that have few digits.
inline uint8_t quarter_of(DType dtype, double value) {
  const unsigned half = half_of(value);
  if (dtype == DType::kF8E5M2 || half == 0) return static_cast<uint8_t>(half >> 8);
  return static_cast<uint8_t>((half >> 7) - (8u << 3));  // another bias, one more bit of fraction
}
inline double quarter_value(DType dtype, uint8_t bits) {
  if (dtype == DType::kF8E5M2) return half_value(static_cast<uint16_t>(bits << 8));
  const int exponent = (bits >> 3) & 15;
  const double fraction = (bits & 7) / 8.0;
  const double size = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return (bits & 0x80) != 0 ? -size : size;
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

// Integers wrap as in the kernels. Complex numbers get only a real part.
inline void store(Elements& e, std::size_t i, double value) {
  const int64_t whole = static_cast<int64_t>(value);
  switch (e.dtype) {
    case DType::kBool: return put(e, i, static_cast<uint8_t>(whole != 0));
    case DType::kU8:
    case DType::kI8:
    case DType::kOpaque: return put(e, i, static_cast<uint8_t>(whole));
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
    case DType::kF8E4M3FN:
    case DType::kF8E5M2: return put(e, i, quarter_of(e.dtype, value));
  }
}
inline bool is_8_bit_float(DType dtype) { return dtype == DType::kF8E4M3FN || dtype == DType::kF8E5M2; }
inline double load_short(const Elements& e, std::size_t i) {
  if (is_8_bit_float(e.dtype)) return quarter_value(e.dtype, get<uint8_t>(e, i));
  const uint16_t bits = get<uint16_t>(e, i);
  return e.dtype == DType::kF16 ? half_value(bits)
                                : double{std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)};
}

inline Elements filled(DType dtype, std::size_t count, std::byte with) {
  return {dtype, count, std::vector<std::byte>(count * size_of(dtype), with)};
}
inline Elements garbage(DType dtype, std::size_t count) { return filled(dtype, count, std::byte{0x5a}); }

// 1 or 2, different from rank to rank and from element to element: products of 8 ranks are
// representable in all types but those of 8 bits. 0 or 1 for bool, and for floats of 8 bits, in
// which sums of 8 ranks would be rounded.
inline double value_of(DType dtype, std::size_t i, Rank rank) {
  const double least = dtype == DType::kBool || is_8_bit_float(dtype) ? 0 : 1;
  return least + static_cast<double>((i / 3 + i + static_cast<std::size_t>(rank)) % 2);
}

// Values repeat after this number of elements, so the rest is copied. Under a sanitizer this takes
// a hundredth of the time.
inline constexpr std::size_t kPeriod = 6;
inline void repeat(Elements& e, std::size_t count) {
  std::size_t done = e.bytes.size();
  e.count = count;
  e.bytes.resize(count * size_of(e.dtype));
  for (std::size_t more = 0; done < e.bytes.size(); done += more) {
    more = std::min(done, e.bytes.size() - done);
    std::memcpy(e.bytes.data() + done, e.bytes.data(), more);
  }
}

inline Elements contribution(DType dtype, std::size_t count, Rank rank, Rank /*size*/) {
  Elements e = filled(dtype, std::min(count, kPeriod), std::byte{0});
  for (std::size_t i = 0; i < e.count; ++i) store(e, i, value_of(dtype, i, rank));
  repeat(e, count);
  return e;
}

inline double combined(const Reduction& how, DType dtype, double a, double b) {
  const int64_t x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  const bool truth = dtype == DType::kBool;
  switch (how.op) {
    case ReduceOp::kSum:
    case ReduceOp::kScaledSum:
    case ReduceOp::kAvg: return truth ? std::fmax(a, b) : a + b;
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMin: return std::fmin(a, b);
    case ReduceOp::kMax: return std::fmax(a, b);
    case ReduceOp::kBAnd: return static_cast<double>(x & y);
    case ReduceOp::kBOr: return static_cast<double>(x | y);
    case ReduceOp::kBXor: return static_cast<double>(x ^ y);
    case ReduceOp::kLAnd: return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::kLOr: return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::kLXor: return (a != 0) != (b != 0) ? 1 : 0;
    case ReduceOp::kMinLoc:
    case ReduceOp::kMaxLoc: break;  // these reduce two elements at once
  }
  return 0;
}

inline bool is_logical(ReduceOp op) {
  return op == ReduceOp::kLAnd || op == ReduceOp::kLOr || op == ReduceOp::kLXor;
}

// Elements i and i + 1: the value and the location that MINLOC or MAXLOC selects.
inline void store_located(Elements& e, ReduceOp op, std::size_t i, Contributors of) {
  double value = value_of(e.dtype, i, of.from), location = value_of(e.dtype, i + 1, of.from);
  for (Rank r = of.from + 1; r < of.to; ++r) {
    const double v = value_of(e.dtype, i, r), at = value_of(e.dtype, i + 1, r);
    const bool wins = op == ReduceOp::kMinLoc ? v < value : v > value;
    if (wins || (v == value && at < location)) location = at;
    if (wins) value = v;
  }
  store(e, i, value);
  store(e, i + 1, location);
}

inline Elements reduced(DType dtype, const Reduction& how, std::size_t count, Contributors of) {
  Elements e = filled(dtype, std::min(count, kPeriod), std::byte{0});
  const Rank ranks = of.to - of.from;
  for (std::size_t i = 0; i + 1 < e.count && takes_pairs(how); i += 2) store_located(e, how, i, of);
  for (std::size_t i = 0; i < e.count && !takes_pairs(how); ++i) {
    double all = value_of(dtype, i, of.from);
    if (is_logical(how)) all = all != 0 ? 1 : 0;  // also for a single rank
    for (Rank r = of.from + 1; r < of.to; ++r) all = combined(how, dtype, all, value_of(dtype, i, r));
    // As in the kernels: a float that is divided once is the correctly rounded quotient.
    if (how.op == ReduceOp::kAvg && (dtype == DType::kF32 || dtype == DType::kC64))
      all = static_cast<float>(all) / static_cast<float>(ranks);
    else if (how.op == ReduceOp::kAvg)
      all /= ranks;
    store(e, i, all * how.factor);
  }
  repeat(e, count);
  return e;
}

inline Elements reduced(DType dtype, const Reduction& how, std::size_t count, Rank size) {
  return reduced(dtype, how, count, Contributors{0, size});
}

// Returns `count` if they are equal. The mean of short floats is computed incrementally and may be
// off by one rounding per rank.
inline std::size_t first_difference(const Elements& got, const Elements& want, bool mean) {
  const bool is_short = got.dtype == DType::kF16 || got.dtype == DType::kBF16 || is_8_bit_float(got.dtype);
  const std::size_t width = size_of(got.dtype);
  if (got.bytes == want.bytes) return want.count;
  for (std::size_t i = 0; i < want.count; ++i) {
    if (std::memcmp(got.bytes.data() + i * width, want.bytes.data() + i * width, width) == 0) continue;
    const double allowed = is_8_bit_float(got.dtype) ? 0.3 : got.dtype == DType::kF16 ? 1.0 / 256 : 1.0 / 32;
    if (mean && is_short && std::abs(load_short(got, i) - load_short(want, i)) <= allowed) continue;
    return i;
  }
  return want.count;
}

}  // namespace pc::testing
