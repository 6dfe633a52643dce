// Every implementation gives the bits of the portable one: hosts with different processors must
// agree. Only the payload of a NaN may differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/reduce.h"
#include "kernels/same_bits.h"

namespace pc {
namespace {

constexpr Weights kWeights[] = {{1, 1, 2}, {2, 1, 3}, {1, 2, 5}, {3, 4, 7}, {5, 3, 8}, {9000, 1, 9001}};

// Calls check(dtype, how, weights, name) for every reduction.
template <class Check>
void for_every_weighted_kernel(Check check) {
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    const bool weighed = how.op == ReduceOp::kAvg || how.op == ReduceOp::kScaledSum;
    for (const Weights& weights : kWeights) {
      check(dtype, how, weights, name);
      if (!weighed) break;
    }
  });
}

// Bit patterns at which arithmetic goes wrong: zeros, subnormals, ones, the values adjacent to
// powers of two, largest, infinity, NaN.
std::vector<uint64_t> specials(DType of) {
  const DType dtype = part_of(of);
  const unsigned bits = static_cast<unsigned>(8 * size_of(dtype));
  const uint64_t infinity = dtype == DType::kF16        ? 0x7c00
                            : dtype == DType::kBF16     ? 0x7f80
                            : dtype == DType::kF32      ? 0x7f800000
                            : dtype == DType::kF64      ? 0x7ff0000000000000
                            : dtype == DType::kF8E4M3FN ? 0x78
                            : dtype == DType::kF8E5M2   ? 0x7c
                                                        : uint64_t{1} << (bits - 2);
  const uint64_t lowest = infinity & (0 - infinity);  // the last exponent bit: the smallest normal number
  const uint64_t one = infinity / 2 - lowest / 2;     // close to 1.0 for floats
  std::vector<uint64_t> all = {0,
                               1,
                               2,
                               lowest - 1,
                               lowest,
                               lowest + 1,
                               one,
                               one + 1,
                               one + lowest,
                               infinity - 1,
                               infinity,
                               infinity + 1,
                               infinity + lowest / 2,
                               3 * lowest + 5};
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) all.push_back(all[i] | (uint64_t{1} << (bits - 1)));
  return all;
}

void put(Bytes& data, uint64_t bits, DType dtype) {
  std::byte raw[8];
  std::memcpy(raw, &bits, sizeof raw);
  data.insert(data.end(), raw, raw + size_of(part_of(dtype)));
}

void expect_all_targets_agree(const Bytes& a, const Bytes& b, DType dtype, const Reduction& op,
                              const Weights& weights, const std::string& what) {
  const std::size_t count = a.size() / size_of(dtype) / 2 * 2;
  Bytes expected(a.size()), found(a.size());
  ASSERT_TRUE(reduce_on("portable", expected.data(), a.data(), b.data(), count, dtype, op, weights));
  for (const std::string_view target : reduce_targets().subspan(1)) {
    reduce_on(target, found.data(), a.data(), b.data(), count, dtype, op, weights);
    expect_same(expected.data(), found.data(), count, dtype, what + " on " + std::string(target));
  }
}

TEST(ReduceSameBits, every_16_bit_float_with_every_kind_of_partner) {
  std::mt19937_64 random(16);
  for_every_weighted_kernel(
      [&](DType dtype, const Reduction& op, const Weights& weights, const std::string& name) {
        if (dtype != DType::kF16 && dtype != DType::kBF16) return;
        std::vector<uint64_t> partners = specials(dtype);
        for (int i = 0; i < 12; ++i) partners.push_back(random());
        Bytes a;
        for (uint64_t bits = 0; bits <= 0xffff; ++bits) put(a, bits, dtype);
        for (const uint64_t partner : partners) {
          Bytes b;
          for (std::size_t i = 0; i <= 0xffff; ++i) put(b, partner, dtype);
          expect_all_targets_agree(a, b, dtype, op, weights, name);
          if (testing::Test::HasFatalFailure()) return;
        }
      });
}

TEST(ReduceSameBits, every_pair_of_8_bit_floats) {
  for_every_weighted_kernel(
      [&](DType dtype, const Reduction& op, const Weights& weights, const std::string& name) {
        if (dtype != DType::kF8E4M3FN && dtype != DType::kF8E5M2) return;
        Bytes a, b;
        for (uint64_t pair = 0; pair <= 0xffff; ++pair) {
          put(a, pair >> 8, dtype);
          put(b, pair & 0xff, dtype);
        }
        expect_all_targets_agree(a, b, dtype, op, weights, name);
      });
}

TEST(ReduceSameBits, every_pair_of_special_values) {
  for_every_weighted_kernel(
      [&](DType dtype, const Reduction& op, const Weights& weights, const std::string& name) {
        Bytes a, b;
        for (const uint64_t x : specials(dtype)) {
          for (const uint64_t y : specials(dtype)) {
            put(a, x, dtype);
            put(b, y, dtype);
          }
        }
        expect_all_targets_agree(a, b, dtype, op, weights, name);
      });
}

TEST(ReduceSameBits, random_bit_patterns) {
  std::mt19937_64 random(1);
  for_every_weighted_kernel(
      [&](DType dtype, const Reduction& op, const Weights& weights, const std::string& name) {
        const Bytes a = random_bytes(random, 40000), b = random_bytes(random, 40000);
        expect_all_targets_agree(a, b, dtype, op, weights, name);
      });
}

// Its payload, all ones, must not be rounded up to a zero.
TEST(ReduceSameBits, a_factor_that_is_nan) {
  const double nan = std::bit_cast<double>(~uint64_t{0});
  std::mt19937_64 random(5);
  for_every_weighted_kernel(
      [&](DType dtype, const Reduction& how, const Weights& weights, const std::string& name) {
        if (how.op != ReduceOp::kScaledSum) return;
        const Bytes a = random_bytes(random, 4000), b = random_bytes(random, 4000);
        expect_all_targets_agree(a, b, dtype, Reduction(how.op, nan), weights, name + " by NaN");
      });
}

// Every count up to several vectors, at every alignment that matters, out of place and in place; no
// byte outside the output changes.
TEST(ReduceSameBits, every_length_alignment_and_overlap_that_is_allowed) {
  std::mt19937_64 random(2);
  constexpr std::size_t kMost = 67 * 16;
  for_every_weighted_kernel([&](DType dtype, const Reduction& op, const Weights& weights,
                                const std::string& name) {
    const Bytes a = random_bytes(random, kMost + 2 * kPad), b = random_bytes(random, kMost + 2 * kPad);
    for (std::size_t count = 0; count <= 67; count += takes_pairs(op) ? 2 : 1) {
      const std::size_t nbytes = count * size_of(dtype);
      const std::size_t at_a = random() % kPad, at_b = random() % kPad, at_out = random() % kPad;
      Bytes expected(kMost);
      reduce_on("portable", expected.data(), a.data() + at_a, b.data() + at_b, count, dtype, op, weights);
      for (const std::string_view target : reduce_targets()) {
        for (const int into : {0, 1, 2}) {  // into a separate buffer, a, b
          Bytes x = a, y = b, z(kMost + 2 * kPad);
          Bytes& holder = into == 0 ? z : into == 1 ? x : y;
          const std::size_t at = into == 0 ? at_out : into == 1 ? at_a : at_b;
          const Bytes before = holder;
          reduce_on(target, holder.data() + at, x.data() + at_a, y.data() + at_b, count, dtype, op, weights);
          expect_same(expected.data(), holder.data() + at, count, dtype, name + " on " + std::string(target));
          const auto end = static_cast<std::ptrdiff_t>(at + nbytes), begin = static_cast<std::ptrdiff_t>(at);
          ASSERT_TRUE(std::equal(before.begin(), before.begin() + begin, holder.begin()))
              << name << " wrote before";
          ASSERT_TRUE(std::equal(before.begin() + end, before.end(), holder.begin() + end))
              << name << " wrote behind";
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

}  // namespace
}  // namespace pc
