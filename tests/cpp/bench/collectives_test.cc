// The table of operations that can be measured.
#include "bench/collectives.h"

#include <gtest/gtest.h>

#include <string>

namespace pc::bench {
namespace {

double factor(const char* name, Rank size) { return find_operation(name)->bus.factor(size); }

TEST(BenchCollectives, bandwidth_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(factor("allreduce", 1), 0);
  EXPECT_DOUBLE_EQ(factor("allreduce", 2), 1);
  EXPECT_DOUBLE_EQ(factor("allreduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(factor("allreduce", 8), 1.75);
  for (const char* const name : {"broadcast", "reduce", "sendrecv"}) {
    for (const Rank size : {1, 2, 8}) EXPECT_DOUBLE_EQ(factor(name, size), 1) << name;
  }
  for (const char* const name : {"allgather", "reduce_scatter", "alltoall", "gather", "scatter"}) {
    EXPECT_DOUBLE_EQ(factor(name, 1), 0) << name;
    EXPECT_DOUBLE_EQ(factor(name, 4), 0.75) << name;
  }
  EXPECT_DOUBLE_EQ(factor("barrier", 8), 0);
}

// In nccl-tests the size is that of the larger side.
TEST(BenchCollectives, an_array_has_a_part_for_every_rank_where_a_rank_has_only_one) {
  const auto parts = [](const char* name) { return find_operation(name)->parts(5); };
  for (const char* const name : {"allreduce", "broadcast", "reduce", "scan", "exscan", "sendrecv"})
    EXPECT_TRUE(parts(name).in == 1 && parts(name).out == 1) << name;
  for (const char* const name : {"allgather", "gather"})
    EXPECT_TRUE(parts(name).in == 1 && parts(name).out == 5) << name;
  for (const char* const name : {"reduce_scatter", "scatter"})
    EXPECT_TRUE(parts(name).in == 5 && parts(name).out == 1) << name;
  EXPECT_TRUE(parts("alltoall").in == 5 && parts("alltoall").out == 5);
  EXPECT_EQ(parts("gather").most(), 5);
  EXPECT_EQ(parts("scatter").most(), 5);
}

TEST(BenchCollectives, every_collective_can_be_measured_and_has_the_parts_of_its_contract) {
  for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c) {
    const Collective collective = static_cast<Collective>(c);
    const Operation* const operation = find_operation(name_of(collective));
    ASSERT_NE(operation, nullptr) << name_of(collective);
    EXPECT_EQ(operation->collective, collective);
    EXPECT_EQ(operation->parts(3).most() == 3, has_parts(collective)) << operation->name;
  }
}

TEST(BenchCollectives, every_operation_is_found_by_its_name_and_is_whole) {
  for (const Operation& operation : operations()) {
    EXPECT_EQ(find_operation(operation.name), &operation);
    EXPECT_TRUE(operation.parts && operation.bus.factor && operation.run);
    EXPECT_TRUE(operation.expected && operation.has_result);
    EXPECT_FALSE(operation.bus.formula.empty());
    EXPECT_GE(operation.trips, 1);
  }
  EXPECT_EQ(find_operation("all_reduce"), nullptr);
  EXPECT_EQ(find_operation(""), nullptr);
}

}  // namespace
}  // namespace pc::bench
