// Percentiles and averages of completions.
#include "bench/latencies.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pc::bench {
namespace {

using Values = std::vector<int64_t>;

TEST(BenchLatencies, a_percentile_is_a_value_that_was_measured) {
  EXPECT_EQ(percentile({5}, 0.5), 5);
  EXPECT_EQ(percentile({5}, 0.99), 5);
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 3, 1, 2}, 0.0), 1);
  EXPECT_EQ(percentile({4, 3, 1, 2}, 1.0), 4);
}

TEST(BenchLatencies, of_few_values_the_99th_percentile_is_the_largest) {
  Values values(1000);
  std::iota(values.rbegin(), values.rend(), 1);
  EXPECT_EQ(percentile(values, 0.99), 990);
  EXPECT_EQ(percentile(Values(values.begin(), values.begin() + 99), 0.99), 1000);
  EXPECT_EQ(percentile(values, 0.50), 500);
}

TEST(BenchLatencies, a_call_takes_from_one_completion_to_the_next) {
  EXPECT_EQ(differences(Values{10, 30, 35}), (Values{20, 5}));
  EXPECT_TRUE(differences(Values{10}).empty());
}

TEST(BenchLatencies, the_mean_is_of_the_total_and_trips_share_the_time) {
  const Latencies once = latencies({1000, 2000, 6000}, 9000, 1);
  EXPECT_DOUBLE_EQ(once.mean_s, 3e-6);
  EXPECT_DOUBLE_EQ(once.p50_s, 2e-6);
  EXPECT_DOUBLE_EQ(once.p99_s, 6e-6);
  const Latencies twice = latencies({1000, 2000, 6000}, 9000, 2);
  EXPECT_DOUBLE_EQ(twice.mean_s, 1.5e-6);
  EXPECT_DOUBLE_EQ(twice.p50_s, 1e-6);
}

}  // namespace
}  // namespace pc::bench
