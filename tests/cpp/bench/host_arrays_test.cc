// The layout of a row's arrays, and which errors in them are detected.
#include "bench/host_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace pc::bench {
namespace {

constexpr Rank kSize = 3;
constexpr uint64_t kPart = 1500;  // more than a period of the pattern

HostArrays memory_of(const char* operation, bool in_place, Rank rank) {
  Result<HostArrays> made =
      HostArrays::create({find_operation(operation), DType::kI32, in_place, kPart, rank, kSize});
  EXPECT_TRUE(made.is_ok());
  return std::move(made).value();
}

// Moves the data of a gather by hand.
void gather(std::vector<HostArrays>& all, Rank to) {
  const std::size_t nbytes = kPart * sizeof(int32_t);
  for (std::size_t from = 0; from < all.size(); ++from)
    std::memmove(all[static_cast<std::size_t>(to)].arrays().out.data + from * nbytes,
                 all[from].arrays().in.data, nbytes);
}

std::vector<HostArrays> filled(const char* operation, bool in_place, const Asked& asked) {
  std::vector<HostArrays> all;
  for (Rank rank = 0; rank < kSize; ++rank) {
    all.push_back(memory_of(operation, in_place, rank));
    all.back().fill(asked);
  }
  return all;
}

TEST(BenchHostArrays, in_place_a_part_is_the_ranks_own_part_of_the_whole) {
  for (Rank rank = 0; rank < kSize; ++rank) {
    const std::size_t before = static_cast<std::size_t>(rank) * kPart * sizeof(int32_t);
    for (const char* const name : {"allgather", "gather"}) {
      const HostArrays memory = memory_of(name, true, rank);
      EXPECT_EQ(memory.arrays().in.data, memory.arrays().out.data + before) << name;
      EXPECT_EQ(memory.arrays().in.count, kPart);
      EXPECT_EQ(memory.arrays().out.count, kSize * kPart);
    }
    for (const char* const name : {"reduce_scatter", "scatter"}) {
      const HostArrays memory = memory_of(name, true, rank);
      EXPECT_EQ(memory.arrays().out.data, memory.arrays().in.data + before) << name;
      EXPECT_EQ(memory.arrays().out.count, kPart);
    }
    const HostArrays same = memory_of("allreduce", true, rank);
    EXPECT_EQ(same.arrays().in.data, same.arrays().out.data);
  }
}

TEST(BenchHostArrays, out_of_place_nothing_overlaps) {
  for (const Operation& operation : operations()) {
    const HostArrays memory = memory_of(std::string(operation.name).c_str(), false, 1);
    const Buffer in = memory.arrays().in, out = memory.arrays().out;
    EXPECT_TRUE(in.data + in.nbytes() <= out.data || out.data + out.nbytes() <= in.data) << operation.name;
  }
}

TEST(BenchHostArrays, parts_that_arrive_at_each_others_place_are_wrong) {
  for (const bool in_place : {true, false}) {
    std::vector<HostArrays> all = filled("allgather", in_place, {});
    gather(all, 1);
    EXPECT_EQ(all[1].count_wrong({}), 0u);
    int32_t* const out = reinterpret_cast<int32_t*>(all[1].arrays().out.data);
    std::swap_ranges(out, out + kPart, out + kPart);
    EXPECT_GT(all[1].count_wrong({}), kPart);
  }
}

TEST(BenchHostArrays, in_an_exchange_every_pair_of_ranks_has_data_of_its_own) {
  std::vector<HostArrays> all = filled("alltoall", false, {});
  const auto part = [](const Buffer& array, Rank which) {
    return reinterpret_cast<int32_t*>(array.data) + kPart * static_cast<uint64_t>(which);
  };
  for (Rank from = 0; from < kSize; ++from)
    std::copy_n(part(all[static_cast<std::size_t>(from)].arrays().in, 2), kPart,
                part(all[2].arrays().out, from));
  EXPECT_EQ(all[2].count_wrong({}), 0u);
  std::copy_n(part(all[0].arrays().in, 1), kPart, part(all[2].arrays().out, 0));  // the part of rank 1
  EXPECT_GT(all[2].count_wrong({}), kPart / 2);
}

TEST(BenchHostArrays, to_a_rank_without_a_result_nothing_may_be_written) {
  const Asked asked = {ReduceOp::kSum, 0};
  for (const char* const name : {"reduce", "gather"}) {
    for (const bool in_place : {true, false}) {
      std::vector<HostArrays> all = filled(name, in_place, asked);
      EXPECT_EQ(all[1].count_wrong(asked), 0u) << name;
      all[1].arrays().out.data[all[1].arrays().out.nbytes() - 1] ^= std::byte{1};
      EXPECT_EQ(all[1].count_wrong(asked), 1u) << name;
      EXPECT_GT(all[0].count_wrong(asked), 0u) << name << ": the root has not got it yet";
    }
  }
  std::vector<HostArrays> first = filled("exscan", false, {});
  EXPECT_EQ(first[0].count_wrong({}), 0u);
  EXPECT_GT(first[1].count_wrong({}), 0u);
}

}  // namespace
}  // namespace pc::bench
