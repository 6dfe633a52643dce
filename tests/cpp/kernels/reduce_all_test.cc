// reduce_all() gives the bits of a chain of reduce() on every implementation, wherever it writes
// the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/reduce.h"
#include "kernels/same_bits.h"

namespace pc {
namespace {

// where `out` is; any other number is the index of the source that `out` aliases
constexpr int kNowhere = -2, kCacheLinePair = -1;

// Sources of `count` elements, at various alignments, and the result of the portable chain on them.
struct Sources {
  std::vector<Bytes> memory;
  std::vector<std::size_t> at;
  Bytes expected;
  std::size_t nbytes;
};

Bytes portable_chain(const Sources& sources, std::size_t count, DType dtype, const Reduction& how) {
  Bytes so_far(sources.nbytes);
  const std::byte* const first = sources.memory[0].data() + sources.at[0];
  const uint32_t total = static_cast<uint32_t>(sources.at.size());
  if (total == 1) reduce_alone(so_far.data(), first, count, dtype, how);
  for (uint32_t k = 1; k < total; ++k) {
    reduce_on("portable", so_far.data(), k == 1 ? first : so_far.data(),
              sources.memory[k].data() + sources.at[k], count, dtype, how, {k, 1, total});
  }
  return so_far;
}

Sources random_sources(std::mt19937_64& random, std::size_t number, std::size_t count, DType dtype,
                       const Reduction& how) {
  Sources made;
  made.nbytes = count * size_of(dtype);
  for (std::size_t k = 0; k < number; ++k) {
    made.memory.push_back(random_bytes(random, made.nbytes + 2 * kPad));
    made.at.push_back(random() % kPad);
  }
  made.expected = portable_chain(made, count, dtype, how);
  return made;
}

// Checks that [at, at + nbytes) of `memory` is the result, and that the rest is unchanged.
void expect_written(const Bytes& memory, const Bytes& before, std::size_t at, const Sources& sources,
                    DType dtype, const std::string& what) {
  Bytes framed = before;
  std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(at), sources.nbytes,
              framed.begin() + static_cast<std::ptrdiff_t>(at));
  ASSERT_TRUE(framed == memory) << what << ": wrote beside the array";
  expect_same(sources.expected.data(), memory.data() + at, sources.nbytes / size_of(dtype), dtype, what);
}

void check(std::string_view target, const Sources& sources, std::size_t count, DType dtype,
           const Reduction& how, int into, bool with_also, std::string what) {
  what += " of " + std::to_string(sources.at.size()) + " sources of " + std::to_string(count) + " into " +
          std::to_string(into) + (with_also ? " and elsewhere on " : " on ") + std::string(target);
  constexpr std::size_t kAtOut = 9, kAtAlso = 21;
  const Bytes blank(sources.nbytes + 2 * kPad);
  std::vector<Bytes> memory = sources.memory;
  Bytes apart = blank, also = blank;
  std::vector<const std::byte*> from;
  for (std::size_t k = 0; k < memory.size(); ++k) from.push_back(memory[k].data() + sources.at[k]);
  const auto source = static_cast<std::size_t>(std::max(into, 0));
  std::byte* const out = into == kNowhere         ? nullptr
                         : into == kCacheLinePair ? apart.data() + kAtOut
                                                  : memory[source].data() + sources.at[source];
  ASSERT_TRUE(
      reduce_all_on(target, out, with_also ? also.data() + kAtAlso : nullptr, from, count, dtype, how));
  for (std::size_t k = 0; k < memory.size(); ++k) {
    if (into < 0 || k != source) {
      ASSERT_TRUE(memory[k] == sources.memory[k]) << what << ": wrote to source " << k;
    }
  }
  if (into == kCacheLinePair) expect_written(apart, blank, kAtOut, sources, dtype, what);
  if (into >= 0)
    expect_written(memory[source], sources.memory[source], sources.at[source], sources, dtype, what);
  if (with_also) expect_written(also, blank, kAtAlso, sources, dtype, what);
}

constexpr std::size_t kMostSources = 5;

TEST(ReduceAll, gives_the_bits_of_the_chain_wherever_the_result_goes) {
  std::mt19937_64 random(3);
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    for (std::size_t number = 1; number <= kMostSources; ++number) {
      for (std::size_t count : {0, 1, 7, 63, 64, 65, 1000}) {
        if (takes_pairs(how.op)) count = count / 2 * 2;
        const Sources sources = random_sources(random, number, count, dtype, how);
        for (const std::string_view target : reduce_targets()) {
          for (int into = kNowhere; into < static_cast<int>(number); ++into) {
            for (const bool with_also : {false, true}) {
              check(target, sources, count, dtype, how, into, with_also, name);
              if (testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  });
}

// Arrays longer than the internal blocks. The output may be a source, which must be unchanged from
// the next block on. Each number of sources runs on the best implementation and on one of the
// others, alternately, since all of them would take long.
TEST(ReduceAll, gives_the_bits_of_the_chain_for_long_arrays) {
  std::mt19937_64 random(4);
  std::size_t next_target = 0;
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    const std::size_t count = takes_pairs(how.op) ? 100002 : 100003;
    for (std::size_t number = 1; number <= kMostSources; ++number) {
      const Sources sources = random_sources(random, number, count, dtype, how);
      const int last = static_cast<int>(number) - 1;
      check(reduce_target(), sources, count, dtype, how, last, true, name);
      const std::string_view other = reduce_targets()[next_target++ % reduce_targets().size()];
      check(other, sources, count, dtype, how, kCacheLinePair, false, name);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(ReduceAll, is_what_the_best_implementation_gives) {
  const std::vector<float> a(67, 1), b(67, 2), c(67, 3), expected(67, 2);
  std::vector<float> out(67), also(67);
  const auto bytes = [](const std::vector<float>& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  const std::byte* const from[] = {bytes(a), bytes(b), bytes(c)};
  reduce_all(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<std::byte*>(also.data()), from, 67,
             DType::kF32, ReduceOp::kAvg);
  EXPECT_EQ(out, expected);
  EXPECT_EQ(also, expected);
  EXPECT_FALSE(reduce_all_on("abacus", nullptr, nullptr, from, 0, DType::kF32, ReduceOp::kSum));
}

// float16 cannot represent 2049: each addition of 1 to 2048 is rounded away, though the sum of all
// is not.
TEST(ReduceAll, rounds_16_bit_floats_at_every_step) {
  const std::vector<uint16_t> large(67, 0x6800), one(67, 0x3c00);
  const auto bytes = [](const std::vector<uint16_t>& v) {
    return reinterpret_cast<const std::byte*>(v.data());
  };
  const std::byte* const from[] = {bytes(large), bytes(one), bytes(one), bytes(one)};
  for (const std::string_view target : reduce_targets()) {
    std::vector<uint16_t> out(67);
    reduce_all_on(target, reinterpret_cast<std::byte*>(out.data()), nullptr, from, 67, DType::kF16,
                  ReduceOp::kSum);
    EXPECT_EQ(out, large) << target;
  }
}

}  // namespace
}  // namespace pc
