// Every kernel of the table, on every implementation, against a slow and plain calculation of each
// element.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/float8.h"
#include "kernels/kernel_table.h"
#include "kernels/same_bits.h"

namespace pc {
namespace {

struct Case {
  ReduceOp op;
  Weights weights;
  double factor;
};

bool truth(ReduceOp op, bool a, bool b) {
  return op == ReduceOp::kLAnd ? a && b : op == ReduceOp::kLOr ? a || b : a != b;
}
bool is_logical(ReduceOp op) {
  return op == ReduceOp::kLAnd || op == ReduceOp::kLOr || op == ReduceOp::kLXor;
}

// The total order of values that min and max use: negative NaNs count as NaNs, -0 is below 0, NaN
// wins.
template <class T>
bool beats(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
    if (a == 0 && b == 0) {
      return op == ReduceOp::kMin ? std::signbit(a) && !std::signbit(b) : std::signbit(b) && !std::signbit(a);
    }
  }
  return op == ReduceOp::kMin ? a < b : a > b;
}

template <class T>
T integer(const Case& c, T a, T b) {
  using Wide = __int128;
  switch (c.op) {
    case ReduceOp::kSum: return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case ReduceOp::kProd: {
      const __uint128_t product = static_cast<__uint128_t>(a) * static_cast<__uint128_t>(b);
      return static_cast<T>(product);
    }
    case ReduceOp::kBAnd: return static_cast<T>(a & b);
    case ReduceOp::kBOr: return static_cast<T>(a | b);
    case ReduceOp::kBXor: return static_cast<T>(a ^ b);
    default:
      return is_logical(c.op) ? static_cast<T>(truth(c.op, a != 0, b != 0)) : beats(c.op, a, b) ? a : b;
  }
}

template <class T>
T floating(const Case& c, T a, T b) {
  switch (c.op) {
    case ReduceOp::kSum: return a + b;
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kAvg: {
      volatile T sum = a + b;
      if (c.weights.a + c.weights.b == c.weights.total) sum = sum / static_cast<T>(c.weights.total);
      return sum;
    }
    case ReduceOp::kScaledSum: {
      volatile T x = a, y = b;
      if (c.weights.a == 1) x = x * static_cast<T>(c.factor);
      if (c.weights.b == 1) y = y * static_cast<T>(c.factor);
      return x + y;
    }
    default:
      return is_logical(c.op) ? static_cast<T>(truth(c.op, a != 0, b != 0)) : beats(c.op, a, b) ? a : b;
  }
}

template <class Short>
Short short_float(const Case& c, Short a, Short b) {
  float x = to_float(a), y = to_float(b), result = 0;
  if (c.op == ReduceOp::kAvg) {
    const MeanFactors f = mean_factors(c.weights);
    volatile float scaled_x = x * f.a, scaled_y = y * f.b, sum = scaled_x + scaled_y;
    result = sum / f.divisor;
  } else {
    result = floating(c, x, y);
  }
  if constexpr (std::is_same_v<Short, F16>) return to_f16(result);
  if constexpr (std::is_same_v<Short, BF16>) return to_bf16(result);
  if constexpr (std::is_same_v<Short, E4M3FN>) return to_e4m3fn(result);
  if constexpr (std::is_same_v<Short, E5M2>) return to_e5m2(result);
}

template <class T>
Complex<T> complex_number(const Case& c, Complex<T> a, Complex<T> b) {
  if (c.op != ReduceOp::kProd) return {floating(c, a.re, b.re), floating(c, a.im, b.im)};
  volatile T ac = a.re * b.re, bd = a.im * b.im, ad = a.re * b.im, bc = a.im * b.re;
  return {ac - bd, ad + bc};
}

Bool boolean(const Case& c, Bool a, Bool b) {
  const bool x = static_cast<uint8_t>(a) != 0, y = static_cast<uint8_t>(b) != 0;
  switch (c.op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBAnd:
    case ReduceOp::kLAnd: return static_cast<Bool>(x && y);
    case ReduceOp::kBXor:
    case ReduceOp::kLXor: return static_cast<Bool>(x != y);
    default: return static_cast<Bool>(x || y);
  }
}

template <class T>
T expected(const Case& c, T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) {
    return boolean(c, a, b);
  } else if constexpr (kShortFloat<T>) {
    return short_float(c, a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return floating(c, a, b);
  } else if constexpr (std::is_integral_v<T>) {
    return integer(c, a, b);
  } else {
    return complex_number(c, a, b);
  }
}

template <class T>
std::vector<T> all_expected(const Case& c, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  if constexpr (std::is_arithmetic_v<T>) {
    const ReduceOp order = c.op == ReduceOp::kMinLoc ? ReduceOp::kMin : ReduceOp::kMax;
    for (std::size_t i = 0; takes_pairs(c.op) && i < a.size(); i += 2) {
      const bool tie = !beats(order, a[i], b[i]) && !beats(order, b[i], a[i]);
      const bool first = tie ? !beats(ReduceOp::kMin, b[i + 1], a[i + 1]) : beats(order, a[i], b[i]);
      out[i] = first ? a[i] : b[i];
      out[i + 1] = first ? a[i + 1] : b[i + 1];
    }
  }
  for (std::size_t i = 0; !takes_pairs(c.op) && i < a.size(); ++i) out[i] = expected(c, a[i], b[i]);
  return out;
}

template <class T>
bool is_nan(T value) {
  if constexpr (kShortFloat<T>) return std::isnan(to_float(value));
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}
template <class T>
bool same(T x, T y) {
  return std::memcmp(&x, &y, sizeof x) == 0 || (is_nan(x) && is_nan(y));
}
template <class T>
bool same(Complex<T> x, Complex<T> y) {
  return same(x.re, y.re) && same(x.im, y.im);
}

// Half of the values have random bits; half are few values that often coincide: ties, zeros of both
// signs, true and false.
template <class T>
std::vector<T> random_values(std::mt19937_64& random, std::size_t count) {
  std::vector<T> values(count);
  for (T& value : values) {
    const uint64_t bits[2] = {random(), random()};
    std::memcpy(&value, bits, sizeof value);
    if (random() % 2 != 0) continue;
    if constexpr (std::is_arithmetic_v<T>) value = static_cast<T>(random() % 3);
    if constexpr (std::is_floating_point_v<T>) value = random() % 2 != 0 ? -value : value;
    if constexpr (sizeof(T) <= 2 && !std::is_arithmetic_v<T>) value = static_cast<T>(random() % 2);
  }
  return values;
}

// Runs at an unaligned address, into a separate buffer, into a and into b.
template <class T>
void expect_right(std::string_view target, DType dtype, const Case& c, const std::vector<T>& a,
                  const std::vector<T>& b) {
  const std::vector<T> want = all_expected(c, a, b);
  const std::size_t nbytes = a.size() * sizeof(T);
  for (const int into : {0, 1, 2}) {
    std::array<std::vector<std::byte>, 3> memory;  // out, a, b
    for (std::size_t i = 0; i < 3; ++i) memory[i].resize(nbytes + kPad, std::byte{0x5a});
    std::byte* const x = memory[1].data() + 1;
    std::byte* const y = memory[2].data() + 3;
    std::byte* const out = into == 0 ? memory[0].data() + 5 : into == 1 ? x : y;
    if (nbytes != 0) std::memcpy(x, a.data(), nbytes);
    if (nbytes != 0) std::memcpy(y, b.data(), nbytes);
    ASSERT_TRUE(reduce_on(target, out, x, y, a.size(), dtype, {c.op, c.factor}, c.weights));
    EXPECT_EQ(out[nbytes], std::byte{0x5a});
    for (std::size_t i = 0; i < a.size(); ++i) {
      T found;
      std::memcpy(&found, out + i * sizeof(T), sizeof found);
      ASSERT_TRUE(same(found, want[i])) << name_of(dtype) << " " << name_of(c.op) << " on " << target
                                        << ": element " << i << " of " << a.size();
    }
  }
}

template <class T>
void expect_all_ops_right(DType dtype) {
  std::mt19937_64 random(static_cast<unsigned>(dtype));
  for (int o = 0; o < kReduceOpCount; ++o) {
    const ReduceOp op = static_cast<ReduceOp>(o);
    if (!can_reduce(dtype, op)) continue;
    const bool weighed = op == ReduceOp::kAvg || op == ReduceOp::kScaledSum;
    for (const Weights weights : {Weights{1, 1, 2}, Weights{1, 1, 3}, Weights{2, 1, 3}, Weights{1, 4, 9}}) {
      for (const std::size_t some : {0, 1, 2, 7, 64, 5001}) {
        const std::size_t count = takes_pairs(op) ? some / 2 * 2 : some;
        const std::vector<T> a = random_values<T>(random, count), b = random_values<T>(random, count);
        for (const std::string_view target : reduce_targets()) {
          expect_right(target, dtype, {op, weights, weighed ? kFactor : 1.0}, a, b);
        }
        if (testing::Test::HasFatalFailure()) return;
      }
      if (!weighed) break;
    }
  }
}

TEST(ReduceReference, every_op_of_bool_is_right) { expect_all_ops_right<Bool>(DType::kBool); }
TEST(ReduceReference, every_op_of_the_integers_is_right) {
  expect_all_ops_right<uint8_t>(DType::kU8);
  expect_all_ops_right<int8_t>(DType::kI8);
  expect_all_ops_right<uint16_t>(DType::kU16);
  expect_all_ops_right<int16_t>(DType::kI16);
  expect_all_ops_right<uint32_t>(DType::kU32);
  expect_all_ops_right<int32_t>(DType::kI32);
  expect_all_ops_right<uint64_t>(DType::kU64);
  expect_all_ops_right<int64_t>(DType::kI64);
}
TEST(ReduceReference, every_op_of_the_floats_is_right) {
  expect_all_ops_right<float>(DType::kF32);
  expect_all_ops_right<double>(DType::kF64);
  expect_all_ops_right<F16>(DType::kF16);
  expect_all_ops_right<BF16>(DType::kBF16);
  expect_all_ops_right<E4M3FN>(DType::kF8E4M3FN);
  expect_all_ops_right<E5M2>(DType::kF8E5M2);
}
TEST(ReduceReference, every_op_of_complex_numbers_is_right) {
  expect_all_ops_right<Complex<float>>(DType::kC64);
  expect_all_ops_right<Complex<double>>(DType::kC128);
}

std::vector<double> alone(std::vector<double> x, const Reduction& how) {
  std::vector<double> out(x.size());
  reduce_alone(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(x.data()),
               x.size(), DType::kF64, how);
  return out;
}

TEST(ReduceAlone, one_contribution_gives_itself_scaled_or_its_truth) {
  const std::vector<double> x = {5, -0.0, 0, -3};
  EXPECT_EQ(alone(x, ReduceOp::kSum), x);
  EXPECT_EQ(alone(x, ReduceOp::kAvg), x);
  EXPECT_EQ(alone(x, ReduceOp::kLXor), (std::vector<double>{1, 0, 0, 1}));
  const std::vector<double> scaled = alone(x, {ReduceOp::kScaledSum, 0.5});
  EXPECT_EQ(scaled, (std::vector<double>{2.5, 0, 0, -1.5}));
  EXPECT_TRUE(std::signbit(scaled[1]) && !std::signbit(scaled[2]));
  EXPECT_EQ(alone(std::vector<double>(5000, 3), {ReduceOp::kScaledSum, 2}), std::vector<double>(5000, 6));
  std::vector<std::complex<float>> z(3000, {1, -2});
  reduce_alone(reinterpret_cast<std::byte*>(z.data()), reinterpret_cast<const std::byte*>(z.data()), z.size(),
               DType::kC64, {ReduceOp::kScaledSum, 3});
  EXPECT_EQ(z, (std::vector<std::complex<float>>(3000, {3, -6})));
  uint8_t flags[3] = {0, 2, 1};
  reduce_alone(reinterpret_cast<std::byte*>(flags), reinterpret_cast<const std::byte*>(flags), 3,
               DType::kBool, ReduceOp::kSum);
  EXPECT_TRUE(flags[0] == 0 && flags[1] == 1 && flags[2] == 1);
}

}  // namespace
}  // namespace pc
