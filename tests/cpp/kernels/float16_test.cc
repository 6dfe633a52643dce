// The software conversions against an independent definition of the formats, for every value.
#include "kernels/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace pc {
namespace {

// Returns the value of a 16-bit float by its definition: sign, `fraction_bits` of fraction, the
// rest exponent.
double by_definition(uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

template <class Format>
void expect_every_value_decodes(int fraction_bits) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const double expected = by_definition(static_cast<uint16_t>(bits), fraction_bits);
    const float found = to_float(static_cast<Format>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << std::hex << bits;
    } else {
      ASSERT_EQ(static_cast<double>(found), expected) << std::hex << bits;
      ASSERT_EQ(std::signbit(found), std::signbit(expected)) << std::hex << bits;
    }
  }
}

// The midpoint of two adjacent values must round to the even one, and the floats next to it to the
// nearer one.
template <class Encode>
void expect_rounds_to_nearest_even(Encode encode, int fraction_bits, uint16_t infinity) {
  const float up = std::numeric_limits<float>::infinity();
  for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
    const float s = sign != 0 ? -1.0f : 1.0f;
    for (uint16_t low = 0; low < infinity; ++low) {
      const uint16_t high = static_cast<uint16_t>(low + 1);
      const double below = by_definition(low, fraction_bits);
      const double gap = low + 1 < infinity
                             ? by_definition(high, fraction_bits) - below
                             : below - by_definition(static_cast<uint16_t>(low - 1), fraction_bits);
      const float middle = static_cast<float>(below + gap / 2);
      ASSERT_EQ(static_cast<double>(middle), below + gap / 2);
      const uint16_t even = (low & 1) != 0 ? high : low;
      ASSERT_EQ(encode(s * static_cast<float>(below)), low | sign) << std::hex << low;
      ASSERT_EQ(encode(s * std::nextafter(middle, 0.0f)), low | sign) << std::hex << low;
      ASSERT_EQ(encode(s * middle), even | sign) << std::hex << low;
      ASSERT_EQ(encode(s * std::nextafter(middle, up)), high | sign) << std::hex << low;
    }
    ASSERT_EQ(encode(s * up), infinity | sign);
    ASSERT_EQ(encode(s * std::numeric_limits<float>::max()), infinity | sign);
  }
  for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xff80ffffu, 0x7fffffffu, 0xffffffffu}) {
    ASSERT_GT(encode(std::bit_cast<float>(nan)) & 0x7fff, infinity) << std::hex << nan;
  }
}

TEST(Float16, every_value_decodes_to_what_the_format_defines) { expect_every_value_decodes<F16>(10); }
TEST(BFloat16, every_value_decodes_to_what_the_format_defines) { expect_every_value_decodes<BF16>(7); }

TEST(Float16, encoding_rounds_to_nearest_even_between_all_adjacent_values) {
  expect_rounds_to_nearest_even([](float value) { return static_cast<uint16_t>(to_f16(value)); }, 10, 0x7c00);
}
TEST(BFloat16, encoding_rounds_to_nearest_even_between_all_adjacent_values) {
  expect_rounds_to_nearest_even([](float value) { return static_cast<uint16_t>(to_bf16(value)); }, 7, 0x7f80);
}

}  // namespace
}  // namespace pc
