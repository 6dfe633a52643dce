// The machine's best rate is measured, at every size.
#include "bench/roofline.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace pc::bench {
namespace {

void expect_times(const Roofline& roofline) {
  EXPECT_GT(roofline.time.p50_s, 0) << roofline.name;
  EXPECT_LE(roofline.time.p50_s, roofline.time.p99_s) << roofline.name;
  EXPECT_GT(roofline.time.mean_s, 0) << roofline.name;
}

TEST(BenchRoofline, every_one_is_measured_at_every_size) {
  Options options;
  options.sizes = {1, 8, 100'000, 3 << 20};
  options.iterations = 5;
  std::map<std::string, std::vector<uint64_t>> sizes;
  const Status measured = measure_roofline(options, [&](const Roofline& roofline) {
    expect_times(roofline);
    EXPECT_EQ(roofline.iterations, 5u);
    sizes[std::string(roofline.name)].push_back(roofline.nbytes);
    return Status::ok();
  });
  ASSERT_TRUE(measured.is_ok()) << measured.to_string();
  EXPECT_EQ(sizes["futex"], std::vector<uint64_t>{0});
  EXPECT_EQ(sizes["memcpy"], options.sizes);
  EXPECT_EQ(sizes["tcp"], options.sizes);
  EXPECT_EQ(sizes["add"], (std::vector<uint64_t>{4, 8, 100'000, 3 << 20}));  // whole float32s, at least one
}

TEST(BenchRoofline, one_that_cannot_be_reported_ends_the_measurement) {
  Options options;
  options.sizes = {8};
  options.iterations = 1;
  int calls = 0;
  const Status measured = measure_roofline(options, [&](const Roofline&) {
    ++calls;
    return Status(Code::kInternal, "full");
  });
  EXPECT_EQ(measured.message(), "full");
  EXPECT_EQ(calls, 1);
}

TEST(BenchRoofline, a_connection_that_takes_too_long_is_given_up) {
  const Result<Roofline> late = roofline_of_tcp(1 << 20, 1, Deadline::after(0));
  ASSERT_FALSE(late.is_ok());
  EXPECT_EQ(late.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace pc::bench
