// The table of what can be measured.
#include "bench/collectives.h"

#include <gtest/gtest.h>

#include <string>

namespace pc::bench {
namespace {

double factor(const char* name, Rank size) { return find_operation(name)->bus_factor(size); }

TEST(BenchCollectives, bandwidth_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(factor("allreduce", 1), 0);
  EXPECT_DOUBLE_EQ(factor("allreduce", 2), 1);
  EXPECT_DOUBLE_EQ(factor("allreduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(factor("allreduce", 8), 1.75);
  for (const char* const name : {"broadcast", "reduce", "sendrecv"}) {
    for (const Rank size : {1, 2, 8}) EXPECT_DOUBLE_EQ(factor(name, size), 1) << name;
  }
  EXPECT_DOUBLE_EQ(factor("barrier", 8), 0);
}

TEST(BenchCollectives, every_operation_is_found_by_its_name_and_is_whole) {
  for (const Operation& operation : operations()) {
    EXPECT_EQ(find_operation(operation.name), &operation);
    EXPECT_TRUE(operation.input && operation.expected && operation.run && operation.bus_factor);
    EXPECT_FALSE(operation.formula.empty());
    EXPECT_GE(operation.trips, 1);
  }
  EXPECT_EQ(find_operation("all_reduce"), nullptr);
  EXPECT_EQ(find_operation(""), nullptr);
}

}  // namespace
}  // namespace pc::bench
