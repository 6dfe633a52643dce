// The loops of the GPU's kernels: for any number of sources and outputs, aligned or not, and any
// number of threads, they give the results of the CPU's kernels in the same order, and write
// nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "device_kernels/cpu_launch.h"
#include "kernels/device/kernel_choice.h"
#include "kernels/reduce.h"
#include "kernels/same_bits.h"

namespace pc {
namespace {

// Memory with room on both sides. Its array begins at a known distance from an address aligned for
// all vectors.
struct Placed {
  Bytes memory;
  std::size_t at;
  Placed(Bytes bytes, std::size_t offset) : memory(std::move(bytes)), at(0) {
    at = (kPad - reinterpret_cast<uintptr_t>(memory.data()) % kPad) % kPad + offset;
  }
  std::byte* data() { return memory.data() + at; }
};
Placed placed_random(std::mt19937_64& random, std::size_t nbytes, std::size_t offset) {
  return {random_bytes(random, nbytes + 3 * kPad), offset};
}

Bytes chain_of_the_cpu(std::vector<Placed>& sources, std::size_t count, DType dtype, const Reduction& how,
                       const std::vector<uint32_t>& contributions, uint32_t total) {
  Bytes so_far(count * size_of(dtype));
  if (sources.size() == 1) reduce_alone(so_far.data(), sources[0].data(), count, dtype, how);
  uint32_t held = contributions[0];
  for (std::size_t k = 1; k < sources.size(); ++k) {
    const std::byte* const first = k == 1 ? sources[0].data() : so_far.data();
    reduce_on("portable", so_far.data(), first, sources[k].data(), count, dtype, how,
              {held, contributions[k], total});
    held += contributions[k];
  }
  return so_far;
}

void launch(const DeviceReduction& reduction, uint64_t threads) {
  const auto arguments = reduce_arguments(reduction);
  ASSERT_TRUE(arguments.is_ok()) << arguments.status().message();
  ASSERT_TRUE(launch_on_cpu(*reduce_kernel(reduction.dtype, reduction.how.op), arguments.value(), threads));
}

void expect_written(Placed& found, const Bytes& before, const Bytes& expected, DType dtype,
                    const std::string& what) {
  Bytes framed = before;
  std::copy_n(found.data(), expected.size(), framed.begin() + static_cast<std::ptrdiff_t>(found.at));
  ASSERT_TRUE(framed == found.memory) << what << ": wrote beside the array";
  expect_same(expected.data(), found.data(), expected.size() / size_of(dtype), dtype, what);
}

struct Case {
  std::size_t number, outputs, count;
  std::size_t offset, step;  // array k begins at byte offset + k * step
  uint64_t threads;
  bool into_sources;
};

void check(const Case& c, DType dtype, const Reduction& how, const std::string& name) {
  std::mt19937_64 random(c.count + c.number);
  const std::size_t count = takes_pairs(how.op) ? c.count / 2 * 2 : c.count, nbytes = count * size_of(dtype);
  const std::string what = name + " of " + std::to_string(c.number) + " sources of " + std::to_string(count) +
                           " at " + std::to_string(c.offset) + " + k * " + std::to_string(c.step) +
                           (c.into_sources ? " into sources" : "");
  std::size_t at = c.offset;
  const auto next = [&] { return placed_random(random, nbytes, (at += c.step) % kPad); };
  std::vector<Placed> sources, outputs;
  for (std::size_t k = 0; k < c.number; ++k) sources.push_back(next());
  const std::vector<uint32_t> ones(c.number, 1);
  const Bytes expected = chain_of_the_cpu(sources, count, dtype, how, ones, static_cast<uint32_t>(c.number));
  for (std::size_t j = 0; j < c.outputs; ++j) outputs.push_back(next());
  std::vector<Placed>& written = c.into_sources ? sources : outputs;
  const std::vector<Placed> before = written;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (Placed& source : sources) from.push_back(source.data());
  for (Placed& output : written) to.push_back(output.data());
  launch({from, to, count, dtype, how}, c.threads);
  for (std::size_t j = 0; j < written.size(); ++j) {
    expect_written(written[j], before[j].memory, expected, dtype, what);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ReduceLoops, give_the_chain_of_the_cpu_for_any_number_of_sources_and_outputs) {
  std::size_t index = 0;
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    for (std::size_t number = 1; number <= device::kMostSources; ++number) {
      if (testing::Test::HasFatalFailure()) return;
      const std::size_t outputs = 1 + index % device::kMostOutputs;
      check({number, outputs, 70 + index % 9, 0, 0, 1 + index % 5, index % 3 == 0}, dtype, how, name);
      ++index;
    }
  });
}

TEST(ReduceLoops, take_every_element_once_whatever_the_count_and_the_number_of_threads) {
  std::size_t index = 0;
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    for (const std::size_t count : {0, 1, 2, 15, 16, 17, 131}) {
      for (const uint64_t threads : {1, 3, 200}) {
        if (testing::Test::HasFatalFailure()) return;
        check({2, 2, count, 0, 0, threads, index++ % 2 == 0}, dtype, how, name);
      }
    }
  });
}

// All arrays misaligned alike, by whole elements; and each by its own distance, where no vector
// fits all.
TEST(ReduceLoops, give_the_same_for_arrays_that_are_not_aligned) {
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    const std::size_t part = size_of(part_of(dtype));
    for (const std::size_t offset : {part, 3 * part, 5 * part, 7 * part}) {
      for (const std::size_t step : {std::size_t{0}, part, std::size_t{32}}) {
        if (testing::Test::HasFatalFailure()) return;
        check({3, 2, 41, offset, step, 4, offset == part}, dtype, how, name);
        check({2, 1, 2, offset, step, 4, false}, dtype, how, name);
      }
    }
  });
}

// Arrays with the same misalignment are read in vectors. Only the elements before the first vector
// are read one by one.
TEST(ReduceLoops, read_vectors_behind_the_elements_before_the_first) {
  alignas(64) std::byte memory[3][256] = {};
  const void* const from[] = {memory[0] + 4, memory[1] + 4};
  void* const to[] = {memory[2] + 4};
  const auto alike = reduce_arguments({from, to, 50, DType::kF32});
  ASSERT_TRUE(alike.is_ok());
  EXPECT_EQ(alike.value().head, 3u);
  EXPECT_EQ(alike.value().in_vectors, 44u);
  void* const apart[] = {memory[2] + 8};
  const auto not_alike = reduce_arguments({from, apart, 50, DType::kF32});
  ASSERT_TRUE(not_alike.is_ok());
  EXPECT_EQ(not_alike.value().in_vectors, 0u);
}

// A launch takes eight sources. The next launch continues with the result of the first.
TEST(ReduceLoops, more_sources_than_a_launch_takes_are_reduced_by_several_to_the_same_bits) {
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    if (testing::Test::HasFatalFailure()) return;
    std::mt19937_64 random(11);
    constexpr std::size_t kCount = 30, kNumber = 11;
    const std::size_t nbytes = kCount * size_of(dtype);
    std::vector<Placed> sources;
    for (std::size_t k = 0; k < kNumber; ++k) sources.push_back(placed_random(random, nbytes, 0));
    const Bytes expected = chain_of_the_cpu(sources, kCount, dtype, how, std::vector<uint32_t>(kNumber, 1),
                                            static_cast<uint32_t>(kNumber));
    Placed out = placed_random(random, nbytes, 0);
    const Bytes before = out.memory;
    void* const to[] = {out.data()};
    std::vector<const void*> first, rest = {out.data()};
    for (std::size_t k = 0; k < kNumber; ++k) (k < 8 ? first : rest).push_back(sources[k].data());
    const std::vector<uint32_t> contributions = {8, 1, 1, 1};
    launch({first, to, kCount, dtype, how, {}, kNumber}, 3);
    launch({rest, to, kCount, dtype, how, contributions, kNumber}, 3);
    expect_written(out, before, expected, dtype, name);
  });
}

TEST(ReduceLoops, sources_that_hold_several_contributions_weigh_as_many) {
  for_every_kernel([&](DType dtype, const Reduction& how, const std::string& name) {
    if (testing::Test::HasFatalFailure()) return;
    std::mt19937_64 random(12);
    constexpr std::size_t kCount = 30;
    const std::vector<uint32_t> contributions = {3, 2, 1};
    for (const uint32_t total : {6u, 9u}) {
      std::vector<Placed> sources;
      for (int k = 0; k < 3; ++k) sources.push_back(placed_random(random, kCount * size_of(dtype), 0));
      const Bytes expected = chain_of_the_cpu(sources, kCount, dtype, how, contributions, total);
      Placed out = placed_random(random, kCount * size_of(dtype), 0);
      const Bytes before = out.memory;
      const void* const from[] = {sources[0].data(), sources[1].data(), sources[2].data()};
      void* const to[] = {out.data()};
      launch({from, to, kCount, dtype, how, contributions, total}, 2);
      expect_written(out, before, expected, dtype, name);
    }
  });
}

TEST(CopyLoop, copies_every_byte_to_every_output_and_no_other_from_and_to_any_address) {
  std::mt19937_64 random(13);
  for (std::size_t from_at = 0; from_at < 16; ++from_at) {
    for (std::size_t to_at = 0; to_at < 16; ++to_at) {
      for (const std::size_t nbytes : {0, 1, 15, 16, 17, 40, 300}) {
        Placed source = placed_random(random, nbytes, from_at);
        Placed one = placed_random(random, nbytes, to_at), other = placed_random(random, nbytes, from_at);
        const Bytes before_one = one.memory, before_other = other.memory;
        const Bytes expected(source.data(), source.data() + nbytes);
        void* const both[] = {one.data(), other.data()};
        const bool alone = nbytes == 40;
        const auto arguments = copy_arguments(std::span(both).first(alone ? 1 : 2), source.data(), nbytes);
        ASSERT_TRUE(arguments.is_ok());
        launch_copy_on_cpu(arguments.value(), 1 + nbytes % 7);
        expect_written(one, before_one, expected, DType::kU8, "copy");
        expect_written(other, before_other, alone ? Bytes() : expected, DType::kU8, "copy elsewhere");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CopyLoop, takes_the_largest_unit_that_suits_all) {
  alignas(64) std::byte memory[2][256] = {};
  const auto unit = [&](std::size_t from_at, std::size_t to_at) {
    void* const to[] = {memory[1] + to_at};
    return copy_arguments(to, memory[0] + from_at, 100).value().unit;
  };
  EXPECT_EQ(unit(0, 0), 16u);
  EXPECT_EQ(unit(5, 21), 16u);
  EXPECT_EQ(unit(5, 13), 8u);
  EXPECT_EQ(unit(5, 1), 4u);
  EXPECT_EQ(unit(5, 3), 2u);
  EXPECT_EQ(unit(5, 2), 1u);
}

}  // namespace
}  // namespace pc
