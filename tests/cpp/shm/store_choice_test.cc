// The stores that are fastest at the moment are used, and the speed of the others is measured
// cheaply.
#include "shm/store_choice.h"

#include <gtest/gtest.h>

namespace pc {
namespace {

constexpr std::size_t kPiece = 64 * 1024;

// Nanoseconds per KiB, by kind of store.
using Machine = std::array<int64_t, kStoresCount>;
constexpr Machine kNear = {33, 40, 50};   // the cores share a cache
constexpr Machine kFar = {400, 300, 50};  // the cores share no cache
constexpr Machine kNearest = {40, 33, 50};

void put(StoreChoice& choice, const Machine& machine, int pieces) {
  for (int i = 0; i < pieces; ++i) {
    for (std::size_t left = kPiece; left != 0;) {
      const StoreChoice::Next next = choice.next(left);
      ASSERT_LE(next.nbytes, left);
      const int64_t kib = machine[static_cast<std::size_t>(next.stores)];
      if (next.is_timed)
        choice.took(next.stores, next.nbytes,
                    std::chrono::nanoseconds(kib * static_cast<int64_t>(next.nbytes) / 1024));
      left -= next.nbytes;
    }
  }
}

TEST(StoreChoice, the_fastest_stores_are_taken_on_every_machine) {
  for (const auto& [machine, best] :
       {std::pair(kNear, Stores::kVector), {kNearest, Stores::kString}, {kFar, Stores::kPastCaches}}) {
    StoreChoice choice;
    put(choice, machine, 100);
    EXPECT_EQ(choice.usual(), best);
  }
}

// The reader of data that was stored past the caches finds none of it in a cache.
TEST(StoreChoice, past_the_caches_must_be_much_faster) {
  StoreChoice choice;
  put(choice, {60, 70, 50}, 1000);
  EXPECT_EQ(choice.usual(), Stores::kVector);
}

TEST(StoreChoice, it_changes_when_a_virtual_machine_moves_its_cores) {
  StoreChoice choice;
  for (int i = 0; i < 3; ++i) {
    put(choice, kNear, 1000);
    EXPECT_EQ(choice.usual(), Stores::kVector) << i;
    put(choice, kFar, 50);
    EXPECT_EQ(choice.usual(), Stores::kPastCaches) << i;
    put(choice, kNear, 500);
    EXPECT_EQ(choice.usual(), Stores::kVector) << i;
  }
}

TEST(StoreChoice, one_interruption_changes_nothing) {
  StoreChoice choice;
  put(choice, kNear, 1000);
  choice.took(choice.usual(), kPiece, std::chrono::milliseconds(4));
  EXPECT_EQ(choice.usual(), Stores::kVector);
  put(choice, kNear, 10);
  EXPECT_EQ(choice.usual(), Stores::kVector);
}

// Counts the pieces, of a thousand, for which is() is true. Each of these must be timed, and is
// reported to have taken `time`.
template <class Is>
int count_in_a_thousand(StoreChoice& choice, std::chrono::nanoseconds time, Is&& is) {
  int count = 0;
  for (int i = 0; i < 1000; ++i) {
    const StoreChoice::Next next = choice.next(kPiece);
    if (!is(next)) continue;
    ++count;
    EXPECT_TRUE(next.is_timed);
    choice.took(next.stores, next.nbytes, time);
  }
  return count;
}

TEST(StoreChoice, what_may_be_slow_is_tried_with_little_and_seldom) {
  StoreChoice choice;
  put(choice, kFar, 100);
  const int tries =
      count_in_a_thousand(choice, std::chrono::microseconds(4), [](const StoreChoice::Next& next) {
        EXPECT_TRUE(next.stores == Stores::kPastCaches || next.nbytes <= 8192);
        return next.stores != Stores::kPastCaches;
      });
  EXPECT_GT(tries, 5);
  EXPECT_LT(tries, 30);
}

TEST(StoreChoice, most_pieces_cost_no_look_at_the_clock) {
  StoreChoice choice;
  put(choice, kNear, 100);
  EXPECT_LT(count_in_a_thousand(choice, std::chrono::nanoseconds(40 * 64),
                                [](const auto& next) { return next.is_timed; }),
            200);
}

TEST(StoreChoice, a_clock_that_says_nothing_decides_nothing_for_good) {
  StoreChoice choice;
  choice.took(Stores::kString, 8192, std::chrono::nanoseconds(0));
  put(choice, kFar, 500);
  EXPECT_EQ(choice.usual(), Stores::kPastCaches);
}

TEST(StoreChoice, what_is_small_is_not_looked_at) {
  StoreChoice choice;
  const StoreChoice::Next next = choice.next(StoreChoice::kLeast - 1);
  EXPECT_EQ(next.stores, Stores::kVector);
  EXPECT_FALSE(next.is_timed);
}

}  // namespace
}  // namespace pc
