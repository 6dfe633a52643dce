// All ways are tried, and the fastest is taken; a change is noticed.
#include "engine/shm/ways.h"

#include <gtest/gtest.h>

namespace pc::shm {
namespace {

using Times = std::array<int, kWayCount>;  // microseconds
constexpr Ways::Kind kWhat = {Collective::kAllgather, false, 1 << 20};

WaySet all() {
  WaySet set;
  for (int way = 0; way < kWayCount; ++way) set.add(static_cast<Way>(way));
  return set;
}

// How often each way is taken in so many calls.
Times make(Ways& ways, int calls, const Times& take, WaySet possible = all()) {
  Times count = {};
  for (int i = 0; i < calls; ++i) {
    const auto [way, on_trial] = ways.next(kWhat, possible);
    const std::size_t at = static_cast<std::size_t>(way);
    if (on_trial) ways.took(way, kWhat, std::chrono::microseconds(take[at]));
    ++count[at];
  }
  return count;
}

TEST(Ways, the_fastest_is_taken_after_all_were_tried) {
  for (std::size_t fastest = 0; fastest < kWayCount; ++fastest) {
    Ways ways;
    Times take = {100, 100, 100};
    take[fastest] = 50;
    const Times count = make(ways, 1000, take);
    EXPECT_GT(count[fastest], 950) << fastest;
    for (const int each : count) EXPECT_GE(each, 8);
  }
}

TEST(Ways, what_is_not_possible_is_never_taken) {
  Ways ways;
  const Times count = make(ways, 1000, {100, 90, 10}, WaySet().add(Way::kLargeRing).add(Way::kSmallRing));
  EXPECT_GT(count[1], 950);
  EXPECT_EQ(count[2], 0);
}

TEST(Ways, one_disturbed_call_changes_nothing) {
  Ways ways;
  make(ways, 100, {100, 50, 100});
  ways.took(Way::kSmallRing, kWhat, std::chrono::seconds(5));
  EXPECT_EQ(make(ways, 10, {100, 50, 100})[1], 10);
}

TEST(Ways, it_changes_over_when_the_machine_does) {
  Ways ways;
  make(ways, 100, {100, 50, 100});
  make(ways, 10'000, {100, 200, 300});
  EXPECT_GT(make(ways, 100, {100, 200, 300})[0], 95);
}

TEST(Ways, sizes_collectives_and_roles_are_apart) {
  Ways ways;
  make(ways, 100, {100, 50, 100});
  for (const Ways::Kind& other : {Ways::Kind{kWhat.collective, false, 64 * kWhat.nbytes},
                                  Ways::Kind{Collective::kAlltoall, false, kWhat.nbytes},
                                  Ways::Kind{kWhat.collective, true, kWhat.nbytes}}) {
    EXPECT_FALSE(ways.next(other, all()).on_trial);  // the first call
    EXPECT_TRUE(ways.next(other, all()).on_trial);
  }
}

TEST(Ways, a_trial_is_several_calls_in_a_row_because_the_first_is_slow) {
  Ways ways;
  Way last = Way::kLargeRing;
  int in_a_row = 0;
  for (int i = 0; i < 1000; ++i) {  // the kernel's copy is the best one, but not when it comes out of nowhere
    const auto [way, on_trial] = ways.next(kWhat, all());
    in_a_row = way == last ? in_a_row + 1 : 1;
    last = way;
    const int took = way != Way::kPrivateMemory ? 50 : in_a_row == 1 ? 200 : 30;
    if (on_trial) ways.took(way, kWhat, std::chrono::microseconds(took));
  }
  EXPECT_GT(make(ways, 100, {50, 50, 30})[2], 90);
}

}  // namespace
}  // namespace pc::shm
