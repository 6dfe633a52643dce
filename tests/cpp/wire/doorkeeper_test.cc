#include "wire/doorkeeper.h"

#include <gtest/gtest.h>

namespace pc {
namespace {

using std::chrono::seconds;
const TimePoint kStart{};
Doorkeeper::Source source(unsigned char number) { return {number}; }

TEST(Doorkeeper, TheOldestOfTheSourceWithMostGoesWhenThereAreTooMany) {
  Doorkeeper door(4, 3);
  EXPECT_EQ(door.enter(10, source(1), kStart), -1);
  EXPECT_EQ(door.enter(20, source(2), kStart + seconds(1)), -1);
  EXPECT_EQ(door.enter(21, source(2), kStart + seconds(1)), -1);
  EXPECT_EQ(door.enter(22, source(2), kStart + seconds(2)), -1);
  EXPECT_EQ(door.enter(23, source(2), kStart + seconds(2)), 20) << "not 10, which is older but alone";
  EXPECT_EQ(door.count(), 4u);
  EXPECT_TRUE(door.has(10));
  EXPECT_FALSE(door.has(20));
}

TEST(Doorkeeper, AFloodFromOneSourceNeverDrivesOutAnother) {
  Doorkeeper door(16, 3);
  door.enter(1, source(1), kStart);
  for (int i = 0; i < 1000; ++i) door.enter(100 + i, source(2), kStart + seconds(1));
  EXPECT_TRUE(door.has(1));
  EXPECT_EQ(door.count(), 16u);
}

TEST(Doorkeeper, WhoStaysTooLongIsNamedAndWhenTheNextIsDue) {
  Doorkeeper door(4, 3);
  EXPECT_EQ(door.next(), TimePoint::max());
  door.enter(1, source(1), kStart);
  door.enter(2, source(2), kStart + seconds(1));
  EXPECT_EQ(door.next(), kStart + seconds(3));
  EXPECT_TRUE(door.impatient(kStart + seconds(2)).empty());
  EXPECT_EQ(door.impatient(kStart + seconds(3)), std::vector<int>{1});
  door.leave(1);
  EXPECT_EQ(door.next(), kStart + seconds(4));
  door.leave(1);
  door.leave(99);
  EXPECT_EQ(door.count(), 1u);
}

TEST(Doorkeeper, EvictsWhenAskedAndSaysWhenNobodyIsThere) {
  Doorkeeper door(4, 3);
  EXPECT_EQ(door.evict(), -1);
  door.enter(1, source(1), kStart);
  EXPECT_EQ(door.evict(), 1);
  EXPECT_EQ(door.evict(), -1);
}

}  // namespace
}  // namespace pc
