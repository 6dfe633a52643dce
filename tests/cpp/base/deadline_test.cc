#include "base/deadline.h"

#include <gtest/gtest.h>

#include <limits>

namespace pc {
namespace {

TEST(Deadline, what_is_not_in_the_future_has_expired) {
  EXPECT_TRUE(Deadline::after(0).expired());
  EXPECT_TRUE(Deadline::after(-5).expired());
  EXPECT_TRUE(Deadline::after(std::numeric_limits<double>::quiet_NaN()).expired());
  EXPECT_FALSE(Deadline::after(60).expired());
  EXPECT_LT(Deadline::after(0).remaining_s(), 1e-9);
}

TEST(Deadline, an_endless_one_does_not_overflow) {
  for (const double seconds : {1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(Deadline::after(seconds).expired());
    EXPECT_GT(Deadline::after(seconds).remaining_s(), 9e8);
    EXPECT_EQ(Deadline::after(seconds).slice_ms(50), 50);
  }
}

TEST(Deadline, a_slice_is_never_zero_before_the_end_nor_longer_than_asked) {
  EXPECT_EQ(Deadline::after(60).slice_ms(50), 50);
  EXPECT_EQ(Deadline::after(0).slice_ms(50), 0);
  const Deadline soon = Deadline::after(0.020);
  for (;;) {  // ends at the deadline
    const int slice = soon.slice_ms(50);
    EXPECT_LE(slice, 20);
    if (slice == 0) break;
  }
  EXPECT_TRUE(soon.expired());
}

TEST(Deadline, keeps_its_point_in_time) {
  const TimePoint when = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  EXPECT_EQ(Deadline(when).when(), when);
}

}  // namespace
}  // namespace pc
