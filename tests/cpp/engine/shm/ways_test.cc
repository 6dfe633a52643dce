// Both ways are tried, and the ring is left for what is clearly faster; a change is noticed.
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

TEST(Ways, the_ring_is_left_for_what_is_clearly_faster) {
  Ways far_is_faster, far_is_slower, they_are_close;
  EXPECT_GT(make(far_is_faster, 1000, {100, 50})[1], 950);
  EXPECT_GT(make(far_is_slower, 1000, {50, 100})[0], 950);
  EXPECT_GT(make(they_are_close, 1000, {100, 90})[0], 950);
}

TEST(Ways, both_are_tried_but_not_in_the_first_call) {
  Ways ways;
  EXPECT_FALSE(ways.next(kWhat).on_trial);  // it finds arrays that nobody has touched
  EXPECT_EQ(make(ways, 4, {50, 100}), (Times{2, 2}));
  EXPECT_EQ(make(ways, 200, {50, 100})[1], 0);
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

TEST(Ways, a_way_that_is_not_possible_is_not_chosen) {
  Ways ways;
  for (int i = 0; i < 100; ++i) {
    const auto [way, on_trial] = ways.next(kWhat);
    if (on_trial && way == Way::kRing) ways.took(way, kWhat, std::chrono::microseconds(50));
    EXPECT_TRUE(on_trial || way == Way::kRing);
  }
}

TEST(Ways, a_trial_is_two_calls_because_the_first_is_slow) {
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
