// The arithmetic of the GPU's kernels gives the bits of the CPU's portable kernels: for every pair
// of bytes, every 16-bit value and the bit patterns at which arithmetic goes wrong. Only the
// payload of a NaN may differ.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device_kernels/cpu_launch.h"
#include "kernels/device/element.h"
#include "kernels/device/kernel_choice.h"
#include "kernels/reduce.h"
#include "kernels/same_bits.h"

namespace pc {
namespace {

constexpr Weights kWeights[] = {{1, 1, 2}, {2, 1, 3}, {1, 2, 5}, {3, 4, 7}, {9000, 1, 9001}};

class EveryType : public testing::TestWithParam<int> {
 protected:
  DType dtype() const { return static_cast<DType>(GetParam()); }

  // Compares the results of both for a and b, for every operation.
  void expect_same_bits(const Bytes& a, const Bytes& b) const {
    for_every_kernel([&](DType of, const Reduction& how, const std::string& name) {
      const bool weighed = how.op == ReduceOp::kAvg || how.op == ReduceOp::kScaledSum;
      if (of != dtype() || HasFatalFailure()) return;
      for (const Weights& weights : kWeights) {
        if (weighed || &weights == kWeights) expect_same_bits(a, b, how, weights, name);
      }
    });
  }

 private:
  void expect_same_bits(const Bytes& a, const Bytes& b, const Reduction& how, const Weights& weights,
                        const std::string& name) const {
    const std::size_t count = a.size() / size_of(dtype()) / 2 * 2;
    Bytes expected(a.size()), found(a.size());
    reduce_on("portable", expected.data(), a.data(), b.data(), count, dtype(), how, weights);
    const void* const from[] = {a.data(), b.data()};
    void* const to[] = {found.data()};
    const uint32_t contributions[] = {weights.a, weights.b};
    const auto arguments = reduce_arguments({from, to, count, dtype(), how, contributions, weights.total});
    ASSERT_TRUE(arguments.is_ok()) << arguments.status().message();
    ASSERT_TRUE(launch_on_cpu(reduce_kernel(dtype(), how.op).value_or(""), arguments.value(), 1)) << name;
    expect_same(expected.data(), found.data(), count, dtype(), name);
  }
};

void put(Bytes& data, uint64_t bits, std::size_t nbytes) {
  std::byte raw[8];
  std::memcpy(raw, &bits, sizeof raw);
  data.insert(data.end(), raw, raw + nbytes);
}

// Zeros, subnormals, ones, the values adjacent to powers of two, largest, infinity, NaN; for
// integers the ends of their ranges.
std::vector<uint64_t> specials(DType of) {
  const DType dtype = part_of(of);
  const unsigned bits = static_cast<unsigned>(8 * size_of(dtype));
  const uint64_t infinity = dtype == DType::kF16        ? 0x7c00
                            : dtype == DType::kBF16     ? 0x7f80
                            : dtype == DType::kF32      ? 0x7f800000
                            : dtype == DType::kF64      ? 0x7ff0000000000000
                            : dtype == DType::kF8E4M3FN ? 0x78
                            : dtype == DType::kF8E5M2   ? 0x7c
                                                        : (uint64_t{1} << (bits - 1)) - 1;
  const uint64_t lowest = infinity & (0 - infinity);
  const uint64_t one = infinity / 2 - lowest / 2;
  std::vector<uint64_t> all;
  for (const uint64_t positive :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, lowest - 1, lowest, lowest + 1, one, one + 1, one + lowest,
        infinity - 1, infinity, infinity + 1, infinity + lowest / 2, 3 * lowest + 5}) {
    all.push_back(positive);
    all.push_back(positive | (uint64_t{1} << (bits - 1)));
  }
  return all;
}

class EveryShortType : public EveryType {};
TEST_P(EveryShortType, gives_the_bits_of_the_cpu_for_all_elements) {
  Bytes a, b;
  if (size_of(dtype()) == 1) {
    for (uint64_t pair = 0; pair < 0x10000; ++pair) put(a, pair >> 8, 1), put(b, pair & 0xff, 1);
  } else {
    // Every value on both sides: against a close value, a distant value and a special value.
    const std::vector<uint64_t> edges = specials(dtype());
    for (uint64_t x = 0; x < 0x10000; ++x) {
      put(a, x, 2), put(b, x ^ ((x * 0x9e37) >> 9 & 0x3ff), 2);
      put(a, x * 0x6255 + 17, 2), put(b, x, 2);
      const uint64_t edge = edges[x % edges.size()];
      put(a, x, 2), put(b, edge, 2);
      put(a, edge, 2), put(b, x, 2);
    }
  }
  expect_same_bits(a, b);
}

TEST_P(EveryType, gives_the_bits_of_the_cpu_for_pairs_of_special_values) {
  const std::size_t nbytes = size_of(part_of(dtype()));
  Bytes a, b;
  std::size_t pair = 0;
  const std::vector<uint64_t> edges = specials(dtype());
  for (const uint64_t x : edges) {
    for (const uint64_t y : edges) {
      // Each value is followed by a second part (or location): once another special value, and once
      // the same value in both.
      const uint64_t second = edges[pair++ % edges.size()], other = edges[pair / 3 % edges.size()];
      put(a, x, nbytes), put(a, second, nbytes), put(a, x, nbytes), put(a, second, nbytes);
      put(b, y, nbytes), put(b, other, nbytes), put(b, y, nbytes), put(b, second, nbytes);
    }
  }
  expect_same_bits(a, b);
}

TEST_P(EveryType, gives_the_bits_of_the_cpu_for_random_bits) {
  std::mt19937_64 random(7);
  const std::size_t nbytes = 4096 * size_of(dtype());
  const Bytes a = random_bytes(random, nbytes);
  Bytes b = random_bytes(random, nbytes);
  // Locations are only compared where values are equal, so some are.
  for (std::size_t i = 0; i + 32 <= nbytes; i += 48) std::memcpy(&b[i], &a[i], size_of(part_of(dtype())));
  expect_same_bits(a, b);
}

// A GPU's own NaN has all bits set, in which a carry would propagate to the sign. No processor that
// runs the tests produces it.
TEST(Element, the_nan_that_gpus_make_stays_one_in_every_short_float) {
  for (const uint32_t nan : {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0xff800001u, 0x7fc00000u}) {
    const float value = device::as_float(nan);
    EXPECT_TRUE(is_nan(DType::kBF16, static_cast<uint64_t>(device::to_bf16(value)))) << std::hex << nan;
    EXPECT_TRUE(is_nan(DType::kF16, static_cast<uint64_t>(device::to_f16(value)))) << std::hex << nan;
    EXPECT_TRUE(is_nan(DType::kF8E4M3FN, static_cast<uint64_t>(device::to_e4m3fn(value)))) << std::hex << nan;
    EXPECT_TRUE(is_nan(DType::kF8E5M2, static_cast<uint64_t>(device::to_e5m2(value)))) << std::hex << nan;
  }
}

std::vector<int> types_of_at_most(std::size_t nbytes) {
  std::vector<int> all;
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (can_reduce(dtype, ReduceOp::kSum) && size_of(dtype) <= nbytes) all.push_back(d);
  }
  return all;
}
std::string type_name(const testing::TestParamInfo<int>& type) {
  return std::string(name_of(static_cast<DType>(type.param)));
}
INSTANTIATE_TEST_SUITE_P(, EveryShortType, testing::ValuesIn(types_of_at_most(2)), type_name);
INSTANTIATE_TEST_SUITE_P(, EveryType, testing::ValuesIn(types_of_at_most(16)), type_name);

}  // namespace
}  // namespace pc
