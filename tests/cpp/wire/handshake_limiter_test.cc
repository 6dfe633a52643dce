#include "wire/handshake_limiter.h"

#include <gtest/gtest.h>

namespace pc {
namespace {

using std::chrono::seconds;
const TimePoint kStart{};
HandshakeLimiter::Source source(unsigned char number) { return {number}; }

TEST(HandshakeLimiter, TheOldestOfTheSourceWithMostIsEvictedWhenThereAreTooMany) {
  HandshakeLimiter limiter(4, 3);
  EXPECT_EQ(limiter.enter(10, source(1), kStart), -1);
  EXPECT_EQ(limiter.enter(20, source(2), kStart + seconds(1)), -1);
  EXPECT_EQ(limiter.enter(21, source(2), kStart + seconds(1)), -1);
  EXPECT_EQ(limiter.enter(22, source(2), kStart + seconds(2)), -1);
  EXPECT_EQ(limiter.enter(23, source(2), kStart + seconds(2)), 20) << "not 10, which is older but alone";
  EXPECT_EQ(limiter.count(), 4u);
  EXPECT_TRUE(limiter.has(10));
  EXPECT_FALSE(limiter.has(20));
}

TEST(HandshakeLimiter, AFloodFromOneSourceNeverEvictsAnother) {
  HandshakeLimiter limiter(16, 3);
  limiter.enter(1, source(1), kStart);
  for (int i = 0; i < 1000; ++i) limiter.enter(100 + i, source(2), kStart + seconds(1));
  EXPECT_TRUE(limiter.has(1));
  EXPECT_EQ(limiter.count(), 16u);
}

TEST(HandshakeLimiter, ReturnsExpiredConnectionsAndTheTimeOfTheNextExpiry) {
  HandshakeLimiter limiter(4, 3);
  EXPECT_EQ(limiter.next(), TimePoint::max());
  limiter.enter(1, source(1), kStart);
  limiter.enter(2, source(2), kStart + seconds(1));
  EXPECT_EQ(limiter.next(), kStart + seconds(3));
  EXPECT_TRUE(limiter.expired(kStart + seconds(2)).empty());
  EXPECT_EQ(limiter.expired(kStart + seconds(3)), std::vector<int>{1});
  limiter.leave(1);
  EXPECT_EQ(limiter.next(), kStart + seconds(4));
  limiter.leave(1);
  limiter.leave(99);
  EXPECT_EQ(limiter.count(), 1u);
}

TEST(HandshakeLimiter, EvictsOnRequestAndReturnsMinusOneWhenNothingIsLeft) {
  HandshakeLimiter limiter(4, 3);
  EXPECT_EQ(limiter.evict(), -1);
  limiter.enter(1, source(1), kStart);
  EXPECT_EQ(limiter.evict(), 1);
  EXPECT_EQ(limiter.evict(), -1);
}

}  // namespace
}  // namespace pc
