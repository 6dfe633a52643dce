// What the machine can do at best is measured, whatever the size.
#include "bench/ceilings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace pc::bench {
namespace {

void expect_times(const Ceiling& ceiling) {
  EXPECT_GT(ceiling.time.p50_s, 0) << ceiling.name;
  EXPECT_LE(ceiling.time.p50_s, ceiling.time.p99_s) << ceiling.name;
  EXPECT_GT(ceiling.time.mean_s, 0) << ceiling.name;
}

TEST(BenchCeilings, every_one_is_measured_at_every_size) {
  Options options;
  options.sizes = {1, 8, 100'000, 3 << 20};
  options.iterations = 5;
  std::map<std::string, std::vector<uint64_t>> sizes;
  const Status measured = measure_ceilings(options, [&](const Ceiling& ceiling) {
    expect_times(ceiling);
    EXPECT_EQ(ceiling.iterations, 5u);
    sizes[std::string(ceiling.name)].push_back(ceiling.nbytes);
    return Status::ok();
  });
  ASSERT_TRUE(measured.is_ok()) << measured.to_string();
  EXPECT_EQ(sizes["futex"], std::vector<uint64_t>{0});
  EXPECT_EQ(sizes["memcpy"], options.sizes);
  EXPECT_EQ(sizes["tcp"], options.sizes);
  EXPECT_EQ(sizes["add"], (std::vector<uint64_t>{4, 8, 100'000, 3 << 20}));  // whole numbers
}

TEST(BenchCeilings, one_that_cannot_be_told_ends_the_measurement) {
  Options options;
  options.sizes = {8};
  options.iterations = 1;
  int told = 0;
  const Status measured = measure_ceilings(options, [&](const Ceiling&) {
    ++told;
    return Status(Code::kInternal, "full");
  });
  EXPECT_EQ(measured.message(), "full");
  EXPECT_EQ(told, 1);
}

TEST(BenchCeilings, a_connection_that_takes_too_long_is_given_up) {
  const Result<Ceiling> late = ceiling_of_tcp(1 << 20, 1, Deadline::after(0));
  ASSERT_FALSE(late.is_ok());
  EXPECT_EQ(late.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace pc::bench
