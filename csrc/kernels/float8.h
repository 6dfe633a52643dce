// Software conversions of the 8-bit float types: exact to float32, and back rounded to nearest
// even, as in ml_dtypes and PyTorch. A value that is too large becomes NaN in float8_e4m3fn, which
// has no infinity, and infinity in float8_e5m2.
#pragma once

#include "kernels/float16.h"

namespace pc {

constexpr float to_float(E5M2 value) {  // the upper half of a float16
  return to_float(static_cast<F16>(static_cast<uint32_t>(value) << 8));
}

constexpr float to_float(E4M3FN value) {
  constexpr uint32_t kRebias = (127 - 7) << 23, kSubnormal = (127 - 6) << 23, kNan = 0x7fc00000;
  const uint32_t magnitude = (static_cast<uint32_t>(value) & 0x7f) << 20;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + kSubnormal) -
                                                     std::bit_cast<float>(kSubnormal));
  const uint32_t number = select(magnitude < (1u << 23), subnormal, magnitude + kRebias);
  const uint32_t bits = select(magnitude == (0x7fu << 20), kNan, number);
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(value) & 0x80) << 24);
}

// Rounds the magnitude of a float32, at most 0x7f800000, to an 8-bit format. A value that is too
// large gives bits beyond the largest number.
template <uint32_t fraction_bits, uint32_t bias>
constexpr uint32_t round_to_8_bits(uint32_t magnitude) {
  constexpr uint32_t kShift = 23 - fraction_bits, kSmallestNormal = (127 - bias + 1) << 23;
  // the last bit of its fraction has the value of the smallest subnormal
  constexpr uint32_t kUnit = (127 - bias + 1 + kShift) << 23;
  const uint32_t clamped = select(magnitude < kSmallestNormal, magnitude, 0);
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(clamped) + std::bit_cast<float>(kUnit)) - kUnit;
  const uint32_t odd = (magnitude >> kShift) & 1;
  const uint32_t normal = (magnitude - ((127 - bias) << 23) + (1u << (kShift - 1)) - 1 + odd) >> kShift;
  return select(magnitude < kSmallestNormal, subnormal, normal);
}

constexpr E4M3FN to_e4m3fn(float value) {
  constexpr uint32_t kInfinity = 0x7f800000, kNan = 0x7f;
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const uint32_t rounded = round_to_8_bits<3, 7>(select(magnitude < kInfinity, magnitude, kInfinity));
  return static_cast<E4M3FN>(select(rounded < kNan, rounded, kNan) | ((bits >> 24) & 0x80));
}

constexpr E5M2 to_e5m2(float value) {
  constexpr uint32_t kInfinity = 0x7f800000, kInfinity8 = 0x7c, kNan = 0x7e;
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const uint32_t rounded = round_to_8_bits<2, 15>(select(magnitude < kInfinity, magnitude, kInfinity));
  const uint32_t number = select(rounded < kInfinity8, rounded, kInfinity8);
  return static_cast<E5M2>(select(magnitude > kInfinity, kNan, number) | ((bits >> 24) & 0x80));
}

}  // namespace pc
