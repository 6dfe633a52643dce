// Software conversions of the 16-bit float types: exact to float32, and back rounded to nearest
// even. They use branch-free selects, so that compilers vectorise loops over them. Subnormals,
// infinities and NaNs are supported; a NaN stays a NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace pc {

// `condition ? yes : no` without a branch, because compilers do not vectorise a loop that has a
// branch.
constexpr uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & (0u - static_cast<uint32_t>(condition)));
}

constexpr float to_float(BF16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

constexpr BF16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t quiet = bits | 0x400000;  // a NaN with its payload in the low half must not become infinity
  return static_cast<BF16>(select((bits & 0x7fffffff) > 0x7f800000, quiet, rounded) >> 16);
}

constexpr float to_float(F16 value) {
  constexpr uint32_t kRebias = (127 - 15) << 23, kSubnormal = (127 - 14) << 23;
  const uint32_t magnitude = (static_cast<uint32_t>(value) & 0x7fff) << 13;
  const uint32_t exponent = magnitude & (0x7c00u << 13);
  const uint32_t normal = magnitude + kRebias;
  const uint32_t special = normal + kRebias;  // infinity and NaN: the exponent becomes all ones
  // A subnormal has no implicit leading 1. So its value is 2^-14 * 1.m - 2^-14.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + kSubnormal) -
                                                     std::bit_cast<float>(kSubnormal));
  const uint32_t bits =
      select(exponent == 0, subnormal, select(exponent == (0x7c00u << 13), special, normal));
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(value) & 0x8000) << 16);
}

constexpr F16 to_f16(float value) {
  constexpr uint32_t kInfinity = 0x7f800000, kTooLarge = (127 + 16) << 23, kSmallestNormal = (127 - 14) << 23;
  // 0.5: the last bit of its fraction has the value 2^-24, float16's smallest subnormal
  constexpr uint32_t kHalf = (127 - 1) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t special = select(magnitude > kInfinity, 0x7e00, 0x7c00);
  const uint32_t clamped = select(magnitude < kSmallestNormal, magnitude, 0);
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(clamped) + std::bit_cast<float>(kHalf)) - kHalf;
  // Adding just under half a unit of the last place, plus 1 if that place is odd, rounds to nearest
  // even. A carry into the exponent gives the correct result, up to infinity.
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - ((127u - 15) << 23) + 0xfff + odd) >> 13;
  const uint32_t result =
      select(magnitude >= kTooLarge, special, select(magnitude < kSmallestNormal, subnormal, normal));
  return static_cast<F16>(result | ((bits >> 16) & 0x8000));
}

}  // namespace pc
