// The data must be right in every order of reduction, and every wrong element must be found.
#include "bench/patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/reduce.h"

namespace pc::bench {
namespace {

constexpr std::size_t kCount = 1500;  // more than a period

struct Part {  // what some ranks have reduced so far
  std::vector<std::byte> bytes;
  uint32_t ranks = 1;
};

Part part_of(DType dtype, ReduceOp op, Rank rank, Rank size) {
  Part part{std::vector<std::byte>(kCount * size_of(dtype)), 1};
  Pattern(dtype, [=](uint64_t i) {
    return contribution(op, rank, size, i);
  }).fill({part.bytes.data(), kCount, dtype});
  return part;
}

Part join(const Part& a, const Part& b, DType dtype, ReduceOp op, Rank size) {
  Part out{std::vector<std::byte>(a.bytes.size()), a.ranks + b.ranks};
  reduce(out.bytes.data(), a.bytes.data(), b.bytes.data(), kCount, dtype, op,
         {a.ranks, b.ranks, static_cast<uint32_t>(size)});
  return out;
}

// Reduces the contributions of ranks first to last - 1. The ranks are split in two recursively, at
// the fraction `share`: 0 splits off the first rank each time, and 1 the last rank.
Part reduced_range(DType dtype, ReduceOp op, Rank first, Rank last, Rank size, double share) {
  if (last - first == 1) return part_of(dtype, op, first, size);
  const Rank cut = std::clamp(first + static_cast<Rank>(share * (last - first)), first + 1, last - 1);
  return join(reduced_range(dtype, op, first, cut, size, share),
              reduced_range(dtype, op, cut, last, size, share), dtype, op, size);
}

uint64_t wrong_in(const Part& part, DType dtype, ReduceOp op, Rank size) {
  return Pattern(dtype, [=](uint64_t i) { return reduced(op, size, i); })
      .count_wrong({part.bytes.data(), kCount, dtype});
}

template <class Check>
void for_all_that_reduce(Check check) {
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const DType dtype = static_cast<DType>(d);
      const ReduceOp op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op) || !has_pattern(dtype) || !has_pattern(op)) continue;
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::string(name_of(op)));
      check(dtype, op);
    }
  }
}

TEST(BenchPatterns, every_order_of_reducing_gives_the_same_bits_in_every_type) {
  for_all_that_reduce([](DType dtype, ReduceOp op) {
    for (const Rank size : {2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 51, 52, 64, 103, 200}) {
      for (const double share : {0.0, 0.3, 0.5, 1.0}) {
        const Part all = reduced_range(dtype, op, 0, size, size, share);
        EXPECT_EQ(wrong_in(all, dtype, op, size), 0u) << size << " ranks, cut at " << share;
      }
    }
  });
}

TEST(BenchPatterns, a_rank_that_is_left_out_or_taken_twice_is_seen) {
  for_all_that_reduce([](DType dtype, ReduceOp op) {
    // reducing one element twice does not change min and max
    if (op == ReduceOp::kMin || op == ReduceOp::kMax) return;
    for (const Rank size : {2, 3, 8, 64}) {
      // all ranks contribute the same values, so the average stays right
      if (op == ReduceOp::kAvg && size > 8) continue;
      const Part all = reduced_range(dtype, op, 0, size, size, 0);
      const Part twice = join(all, part_of(dtype, op, size - 1, size), dtype, op, size + 1);
      EXPECT_GT(wrong_in(twice, dtype, op, size), 0u) << size << " ranks";
      const Part fewer = reduced_range(dtype, op, 0, size - 1, size, 0);
      EXPECT_GT(wrong_in(fewer, dtype, op, size), 0u) << size << " ranks";
    }
  });
}

TEST(BenchPatterns, in_every_type_data_of_another_rank_or_from_another_place_is_wrong) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    const auto pattern = [&](Rank rank, uint64_t shift) {
      return Pattern(dtype, [=](uint64_t i) { return mark(rank, i + shift); });
    };
    std::vector<std::byte> bytes(kCount * size_of(dtype));
    const Buffer data = {bytes.data(), kCount, dtype};
    pattern(1, 0).fill(data);
    EXPECT_EQ(pattern(1, 0).count_wrong(data), 0u);
    for (const uint64_t shift : {1, 2, 64, 256, 512, 1024})
      EXPECT_GT(pattern(1, shift).count_wrong(data), kCount / 3) << name_of(dtype) << " " << shift;
    EXPECT_GT(pattern(0, 0).count_wrong(data), kCount / 3) << name_of(dtype);
  }
}

TEST(BenchPatterns, every_wrong_element_is_counted_once) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    const std::size_t width = size_of(dtype);
    std::vector<std::byte> bytes(kCount * width);
    const Buffer data = {bytes.data(), kCount, dtype};
    const Pattern pattern(dtype, [](uint64_t i) { return mark(0, i); });
    pattern.fill(data);
    const std::vector<std::size_t> planted = {0, 7, 1020, 1021, kCount - 1};
    for (std::size_t n = 0; n < planted.size(); ++n) {
      bytes[planted[n] * width + width - 1] ^= std::byte{1};
      EXPECT_EQ(pattern.count_wrong(data), n + 1) << name_of(dtype);
    }
  }
}

TEST(BenchPatterns, what_the_first_ranks_make_is_exact_in_every_type) {
  for_all_that_reduce([](DType dtype, ReduceOp op) {
    if (op == ReduceOp::kAvg) return;  // an average is defined over all ranks only
    for (const Rank end : {1, 2, 5, 51, 64}) {
      const Part some = reduced_range(dtype, op, 0, end, 64, 0.5);
      const Pattern wanted(dtype, [=](uint64_t i) { return reduced_until(op, end, 64, i); });
      EXPECT_EQ(wanted.count_wrong({some.bytes.data(), kCount, dtype}), 0u) << end;
    }
  });
}

TEST(BenchPatterns, nothing_is_neither_filled_nor_wrong) {
  const Pattern pattern(DType::kF32, [](uint64_t) { return 1.0; });
  pattern.fill({});
  EXPECT_EQ(pattern.count_wrong({}), 0u);
}

}  // namespace
}  // namespace pc::bench
