// The contract of kernels/reduce.h about values, checked on every implementation of this build.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/float16.h"

namespace pc {
namespace {

template <class T>
std::vector<T> run(std::string_view target, const std::vector<T>& a, const std::vector<T>& b, DType dtype,
                   ReduceOp op, Weights weights = {}) {
  std::vector<T> out(a.size());
  const auto bytes = [](const std::vector<T>& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  EXPECT_TRUE(reduce_on(target, reinterpret_cast<std::byte*>(out.data()), bytes(a), bytes(b), a.size(), dtype,
                        op, weights));
  return out;
}

class EveryTarget : public testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Reduce, EveryTarget,
                         testing::ValuesIn(reduce_targets().begin(), reduce_targets().end()),
                         [](const auto& test) { return std::string(test.param); });

// Returns enough elements for whole vectors and a remainder.
template <class T>
std::vector<T> many(T value) {
  return std::vector<T>(67, value);
}

TEST_P(EveryTarget, integers_wrap) {
  using I32 = std::numeric_limits<int32_t>;
  using I64 = std::numeric_limits<int64_t>;
  EXPECT_EQ(run(GetParam(), many(I32::max()), many(1), DType::kI32, ReduceOp::kSum), many(I32::min()));
  EXPECT_EQ(run(GetParam(), many(I32::min()), many(-1), DType::kI32, ReduceOp::kProd), many(I32::min()));
  EXPECT_EQ(run(GetParam(), many(I64::max()), many(int64_t{1}), DType::kI64, ReduceOp::kSum),
            many(I64::min()));
  EXPECT_EQ(run(GetParam(), many(I64::max()), many(I64::max()), DType::kI64, ReduceOp::kProd),
            many(int64_t{1}));
  EXPECT_EQ(run(GetParam(), many(uint8_t{200}), many(uint8_t{100}), DType::kU8, ReduceOp::kSum),
            many(uint8_t{44}));
  EXPECT_EQ(run(GetParam(), many(uint8_t{200}), many(uint8_t{100}), DType::kU8, ReduceOp::kProd),
            many(uint8_t{32}));
}

TEST_P(EveryTarget, integers_compare_with_their_own_sign) {
  EXPECT_EQ(run(GetParam(), many(-1), many(1), DType::kI32, ReduceOp::kMin), many(-1));
  EXPECT_EQ(run(GetParam(), many(int64_t{-1}), many(int64_t{1}), DType::kI64, ReduceOp::kMax),
            many(int64_t{1}));
  EXPECT_EQ(run(GetParam(), many(uint8_t{255}), many(uint8_t{1}), DType::kU8, ReduceOp::kMax),
            many(uint8_t{255}));
}

template <class T>
void expect_nan_and_zero_rules(std::string_view target, DType dtype, T nan, T positive, T negative, T one) {
  const auto bits_equal = [](const std::vector<T>& x, const std::vector<T>& y) {
    return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
  };
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const T other : {one, positive, negative, nan}) {
      for (const bool swapped : {false, true}) {
        const std::vector<T> out =
            run(target, many(swapped ? other : nan), many(swapped ? nan : other), dtype, op);
        for (const T value : out) EXPECT_TRUE(std::isnan(static_cast<double>(value))) << name_of(dtype);
      }
    }
    const std::vector<T> expected = many(op == ReduceOp::kMin ? negative : positive);
    EXPECT_TRUE(bits_equal(run(target, many(negative), many(positive), dtype, op), expected))
        << name_of(dtype);
    EXPECT_TRUE(bits_equal(run(target, many(positive), many(negative), dtype, op), expected))
        << name_of(dtype);
  }
}
TEST_P(EveryTarget, min_and_max_propagate_nan_and_put_negative_zero_first) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_nan_and_zero_rules<float>(GetParam(), DType::kF32, static_cast<float>(nan), 0.0f, -0.0f, 1.0f);
  expect_nan_and_zero_rules<double>(GetParam(), DType::kF64, nan, 0.0, -0.0, 1.0);
}

TEST_P(EveryTarget, avg_of_float32_is_a_sum_divided_once_when_complete) {
  EXPECT_EQ(run(GetParam(), many(2.0f), many(3.0f), DType::kF32, ReduceOp::kAvg, {1, 1, 3}), many(5.0f));
  EXPECT_EQ(run(GetParam(), many(5.0f), many(3.0f), DType::kF32, ReduceOp::kAvg, {2, 1, 3}),
            many(8.0f / 3.0f));
  EXPECT_EQ(run(GetParam(), many(5.0), many(3.0), DType::kF64, ReduceOp::kAvg, {3, 4, 7}), many(8.0 / 7.0));
  EXPECT_EQ(run(GetParam(), many(5.0), many(3.0), DType::kF64, ReduceOp::kAvg, {3, 5, 8}), many(1.0));
}

TEST_P(EveryTarget, avg_of_the_16_bit_types_cannot_overflow) {
  for (const Weights weights :
       {Weights{1, 1, 2}, Weights{2, 1, 3}, Weights{1000, 23, 1023}, Weights{65535, 1, 65536}}) {
    const std::vector<uint16_t> largest16 = many(uint16_t{0x7bff}), largestb = many(uint16_t{0x7f7f});
    EXPECT_EQ(run(GetParam(), largest16, largest16, DType::kF16, ReduceOp::kAvg, weights), largest16);
    EXPECT_EQ(run(GetParam(), largestb, largestb, DType::kBF16, ReduceOp::kAvg, weights), largestb);
  }
}

TEST_P(EveryTarget, avg_of_the_16_bit_types_keeps_the_smallest_values) {
  for (const Weights weights : {Weights{1, 1, 2}, Weights{2, 1, 3}, Weights{65534, 1, 65535}}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const uint16_t bits : {uint16_t{1}, uint16_t{0x8001}, uint16_t{0x40}}) {  // subnormals
        EXPECT_EQ(run(GetParam(), many(bits), many(bits), dtype, ReduceOp::kAvg, weights), many(bits));
      }
    }
  }
}

// A product and a sum that the compiler fused would not be rounded in between. With more than 8192
// ranks the difference shows.
TEST_P(EveryTarget, avg_of_float16_rounds_every_step_even_with_many_ranks) {
  for (const Weights weights :
       {Weights{8193, 1, 9000}, Weights{12345, 6789, 20000}, Weights{65535, 65535, 131070}}) {
    const float scale = 1.0f / static_cast<float>(std::bit_ceil(weights.a + weights.b));
    std::vector<uint16_t> a, b, expected;
    for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
      a.push_back(static_cast<uint16_t>(bits));
      b.push_back(static_cast<uint16_t>((bits * 40503 + 12345) % 0x7c00 | (bits << 15 & 0x8000)));
      const volatile float x = to_float(F16{a.back()}) * (static_cast<float>(weights.a) * scale);
      const volatile float y = to_float(F16{b.back()}) * (static_cast<float>(weights.b) * scale);
      const volatile float sum = x + y;
      expected.push_back(
          static_cast<uint16_t>(to_f16(sum / (static_cast<float>(weights.a + weights.b) * scale))));
    }
    EXPECT_EQ(run(GetParam(), a, b, DType::kF16, ReduceOp::kAvg, weights), expected);
  }
}

TEST_P(EveryTarget, sums_of_16_bit_floats_round_to_nearest_even) {
  // bfloat16: 256 + 1 is between 256 and 258, and 256 is the even one; 258 + 1 rounds up to 260.
  const auto bf16 = [](float value) { return static_cast<uint16_t>(to_bf16(value)); };
  EXPECT_EQ(run(GetParam(), many(bf16(256)), many(bf16(1)), DType::kBF16, ReduceOp::kSum), many(bf16(256)));
  EXPECT_EQ(run(GetParam(), many(bf16(258)), many(bf16(1)), DType::kBF16, ReduceOp::kSum), many(bf16(260)));
  const auto f16 = [](float value) { return static_cast<uint16_t>(to_f16(value)); };
  EXPECT_EQ(run(GetParam(), many(f16(2048)), many(f16(1)), DType::kF16, ReduceOp::kSum), many(f16(2048)));
  EXPECT_EQ(run(GetParam(), many(f16(2050)), many(f16(1)), DType::kF16, ReduceOp::kSum), many(f16(2052)));
  EXPECT_EQ(run(GetParam(), many(f16(65504)), many(f16(16)), DType::kF16, ReduceOp::kSum),
            many(uint16_t{0x7c00}));
}

std::string offered(DType dtype) {
  std::string ops;
  for (int o = 0; o < kReduceOpCount; ++o) {
    const ReduceOp op = static_cast<ReduceOp>(o);
    if (can_reduce(dtype, op)) ops += (ops.empty() ? "" : ", ") + std::string(name_of(op));
  }
  return ops;
}

TEST(Reduce, offers_what_is_meaningful) {
  const std::string bits = "sum, prod, min, max, band, bor, bxor, land, lor, lxor";
  const std::string short_floats = "sum, prod, min, max, avg, land, lor, lxor, scaled sum";
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI8}) EXPECT_EQ(offered(dtype), bits);
  for (const DType dtype : {DType::kU16, DType::kI16, DType::kU32, DType::kI32, DType::kU64, DType::kI64}) {
    EXPECT_EQ(offered(dtype), bits + ", minloc, maxloc");
  }
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2}) {
    EXPECT_EQ(offered(dtype), short_floats);
  }
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    EXPECT_EQ(offered(dtype), "sum, prod, min, max, avg, land, lor, lxor, minloc, maxloc, scaled sum");
  }
  for (const DType dtype : {DType::kC64, DType::kC128}) {
    EXPECT_EQ(offered(dtype), "sum, prod, avg, scaled sum");
  }
  EXPECT_EQ(offered(DType::kOpaque), "");
}

TEST(Reduce, uses_the_best_target_and_knows_the_portable_one) {
  EXPECT_EQ(reduce_targets().front(), "portable");
  EXPECT_EQ(reduce_target(), reduce_targets().back());
  float a = 1, b = 2, out = 0;
  reduce(reinterpret_cast<std::byte*>(&out), reinterpret_cast<std::byte*>(&a),
         reinterpret_cast<std::byte*>(&b), 1, DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(out, 3.0f);
  EXPECT_FALSE(reduce_on("abacus", nullptr, nullptr, nullptr, 0, DType::kF32, ReduceOp::kSum));
}

}  // namespace
}  // namespace pc
