// Both ways are tried, and the fastest is taken; a change is noticed.
#include "engine/shm/ways.h"

#include <gtest/gtest.h>

namespace pc::shm {
namespace {

using Times = std::array<int, kWayCount>;  // microseconds
constexpr Ways::Kind kWhat = {Collective::kAllgather, false, 1 << 20};

// How often each way is taken in so many calls.
Times make(Ways& ways, int calls, const Times& take, const Ways::Kind& what = kWhat) {
  Times count = {};
  for (int i = 0; i < calls; ++i) {
    const auto [way, on_trial] = ways.next(what);
    const std::size_t at = static_cast<std::size_t>(way);
    if (on_trial) ways.took(way, what, std::chrono::microseconds(take[at]));
    ++count[at];
  }
  return count;
}

TEST(Ways, the_fastest_is_taken_after_both_were_tried) {
  for (std::size_t fastest = 0; fastest < kWayCount; ++fastest) {
    Ways ways;
    Times take = {100, 100};
    take[fastest] = 50;
    const Times count = make(ways, 1000, take);
    EXPECT_GT(count[fastest], 950) << fastest;
    EXPECT_GT(count[1 - fastest], 5);
  }
}

TEST(Ways, one_disturbed_call_changes_nothing) {
  Ways ways;
  make(ways, 100, {100, 50});
  ways.took(Way::kPrivateMemory, kWhat, std::chrono::seconds(5));
  EXPECT_EQ(make(ways, 10, {100, 50})[1], 10);
}

TEST(Ways, it_changes_over_when_the_machine_does) {
  Ways ways;
  make(ways, 100, {100, 50});
  make(ways, 10'000, {100, 200});
  EXPECT_GT(make(ways, 100, {100, 200})[0], 95);
}

TEST(Ways, sizes_collectives_and_roles_are_apart) {
  Ways ways;
  make(ways, 100, {100, 50});
  for (const Ways::Kind& other : {Ways::Kind{kWhat.collective, false, 64 * kWhat.nbytes},
                                  Ways::Kind{Collective::kAlltoall, false, kWhat.nbytes},
                                  Ways::Kind{kWhat.collective, true, kWhat.nbytes}}) {
    EXPECT_FALSE(ways.next(other).on_trial);  // the first call
    EXPECT_TRUE(ways.next(other).on_trial);
  }
}

// Three calls of 128 MiB should not be spent on what 16 MiB have shown.
TEST(Ways, what_was_half_as_fast_with_less_is_not_tried_at_first) {
  const Ways::Kind more = {kWhat.collective, false, 8 * kWhat.nbytes};
  Ways clear;
  make(clear, 100, {50, 200});
  EXPECT_EQ(make(clear, 100, {400, 1600}, more)[0], 100);
  make(clear, 1000, {400, 200}, more);  // in the end it is
  EXPECT_GT(make(clear, 100, {400, 200}, more)[1], 90);
  const Ways::Kind far_more = {kWhat.collective, false, 16 * kWhat.nbytes};
  EXPECT_GT(make(clear, 100, {800, 3200}, far_more)[1], 0);  // what was guessed shows nothing
  Ways close;
  make(close, 100, {50, 60});
  EXPECT_GT(make(close, 100, {400, 480}, more)[1], 0);
}

TEST(Ways, an_unfinished_trial_shows_nothing) {
  for (int calls : {3, 6, 7, 8}) {
    Ways ways;
    make(ways, calls, {50, 1000});
    EXPECT_GT(make(ways, 100, {100, 50}, {kWhat.collective, false, 2 * kWhat.nbytes})[1], 80) << calls;
  }
}

TEST(Ways, a_way_that_was_never_possible_shows_nothing) {
  Ways ways;
  for (int i = 0; i < 100; ++i) {
    const auto [way, on_trial] = ways.next(kWhat);
    if (on_trial && way == Way::kRing) ways.took(way, kWhat, std::chrono::microseconds(50));
  }
  EXPECT_GT(make(ways, 100, {100, 50}, {kWhat.collective, false, 2 * kWhat.nbytes})[1], 80);
}

TEST(Ways, a_trial_is_several_calls_in_a_row_because_the_first_is_slow) {
  Ways ways;
  Way last = Way::kRing;
  int in_a_row = 0;
  for (int i = 0; i < 1000; ++i) {  // the kernel's copy is the best one, but not when it comes out of nowhere
    const auto [way, on_trial] = ways.next(kWhat);
    in_a_row = way == last ? in_a_row + 1 : 1;
    last = way;
    const int took = way != Way::kPrivateMemory ? 50 : in_a_row == 1 ? 200 : 30;
    if (on_trial) ways.took(way, kWhat, std::chrono::microseconds(took));
  }
  EXPECT_GT(make(ways, 100, {50, 30})[1], 90);
}

}  // namespace
}  // namespace pc::shm
