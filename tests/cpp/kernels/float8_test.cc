// The 8-bit conversions against the definition of the formats, for every value and all midpoints.
#include "kernels/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace pc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the magnitudes of a format in order, and one more: the next one if the exponent had no
// limit.
std::vector<double> magnitudes(int fraction_bits, int bias, int largest) {
  std::vector<double> values;
  for (int bits = 0; bits <= largest + 1; ++bits) {
    const int exponent = bits >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    values.push_back(exponent == 0
                         ? std::ldexp(fraction, 1 - bias - fraction_bits)
                         : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits));
  }
  return values;
}

template <class Format>
void expect_decodes(const std::vector<double>& values) {
  for (std::size_t bits = 0; bits + 1 < values.size(); ++bits) {
    EXPECT_EQ(static_cast<double>(to_float(static_cast<Format>(bits))), values[bits]) << bits;
    const float negative = to_float(static_cast<Format>(bits | 0x80));
    EXPECT_EQ(static_cast<double>(negative), -values[bits]) << bits;
    EXPECT_TRUE(std::signbit(negative)) << bits;
  }
}

// The midpoint of two adjacent values must round to the even one, and the floats next to it to the
// nearer one.
template <class Encode>
void expect_rounds_to_nearest_even(Encode encode, const std::vector<double>& values) {
  for (std::size_t low = 0; low + 1 < values.size(); ++low) {
    const float middle = static_cast<float>((values[low] + values[low + 1]) / 2);
    const std::size_t even = low % 2 == 0 ? low : low + 1;
    for (const uint32_t sign : {0u, 0x80u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      EXPECT_EQ(encode(s * static_cast<float>(values[low])), low | sign);
      EXPECT_EQ(encode(s * std::nextafter(middle, 0.0f)), low | sign) << low;
      EXPECT_EQ(encode(s * middle), even | sign) << low;
      EXPECT_EQ(encode(s * std::nextafter(middle, 1e9f)), (low + 1) | sign) << low;
    }
  }
}

uint32_t e4m3fn(float value) { return static_cast<uint32_t>(to_e4m3fn(value)); }
uint32_t e5m2(float value) { return static_cast<uint32_t>(to_e5m2(value)); }

TEST(Float8, every_value_decodes_to_what_the_format_defines) {
  expect_decodes<E4M3FN>(magnitudes(3, 7, 0x7e));
  expect_decodes<E5M2>(magnitudes(2, 15, 0x7b));
  EXPECT_TRUE(std::isnan(to_float(E4M3FN{0x7f})) && std::isnan(to_float(E4M3FN{0xff})));
  EXPECT_EQ(static_cast<double>(to_float(E5M2{0x7c})), kInfinity);
  EXPECT_EQ(static_cast<double>(to_float(E5M2{0xfc})), -kInfinity);
  for (uint32_t bits = 0x7d; bits <= 0x7f; ++bits) {
    EXPECT_TRUE(std::isnan(to_float(static_cast<E5M2>(bits))));
    EXPECT_TRUE(std::isnan(to_float(static_cast<E5M2>(bits | 0x80))));
  }
}

TEST(Float8, encoding_rounds_to_nearest_even_between_all_adjacent_values) {
  expect_rounds_to_nearest_even(e4m3fn, magnitudes(3, 7, 0x7e));
  expect_rounds_to_nearest_even(e5m2, magnitudes(2, 15, 0x7b));
}

TEST(Float8, what_is_too_large_becomes_nan_or_infinity) {
  for (const float large : {464.1f, 1e4f, 1e30f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(e4m3fn(large), 0x7fu) << large;
    EXPECT_EQ(e4m3fn(-large), 0xffu) << large;
  }
  for (const float large : {61440.0f, 1e6f, 1e30f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(e5m2(large), 0x7cu) << large;
    EXPECT_EQ(e5m2(-large), 0xfcu) << large;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(e4m3fn(infinity), 0x7fu);
  EXPECT_EQ(e5m2(-infinity), 0xfcu);
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_EQ(e4m3fn(std::bit_cast<float>(bits)) & 0x7f, 0x7fu) << std::hex << bits;
    EXPECT_GT(e5m2(std::bit_cast<float>(bits)) & 0x7f, 0x7cu) << std::hex << bits;
  }
}

}  // namespace
}  // namespace pc
