// A ring never reuses memory that is still read, and reuses all of it when no reader is left.
#include "shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace pc::shm {
namespace {

constexpr uint64_t kBegin = 4096, kNbytes = 1 << 20;

struct Taken {
  uint64_t position;
  std::size_t nbytes;
  Ring::Use use;
};
bool overlap(const Taken& a, const Taken& b) {
  return a.position < b.position + b.nbytes && b.position < a.position + a.nbytes;
}

class RingTest : public ::testing::Test {
 protected:
  RingTest() { ring.set_place(kBegin, kNbytes); }
  static bool always(const Ring::Use&) { return true; }
  static bool never(const Ring::Use&) { return false; }
  Ring ring;
};

TEST_F(RingTest, messages_are_inside_and_apart_and_in_cache_lines_of_their_own) {
  std::vector<Taken> all;
  for (uint64_t sequence = 1; sequence <= 8; ++sequence) {
    const auto position = ring.take(1000, {sequence, 0}, never);
    ASSERT_TRUE(position);
    EXPECT_EQ(*position % 128, 0U);
    const Taken taken{*position, 1000, {}};
    EXPECT_TRUE(taken.position >= kBegin && taken.position + taken.nbytes <= kBegin + kNbytes);
    for (const Taken& other : all) EXPECT_FALSE(overlap(taken, other));
    all.push_back(taken);
  }
}

TEST_F(RingTest, what_is_read_is_not_given_away) {
  for (uint32_t round = 0; round < 4; ++round) ASSERT_TRUE(ring.take(kNbytes / 4, {1, round}, never));
  EXPECT_FALSE(ring.take(128, {1, 4}, never));
  EXPECT_TRUE(ring.take(128, {1, 4}, [](const Ring::Use& use) { return use.round == 0; }));
}

TEST_F(RingTest, what_is_larger_than_the_ring_has_no_room) {
  EXPECT_FALSE(ring.take(kNbytes + 1, {1}, always));
}

TEST_F(RingTest, small_messages_of_many_calls_are_all_given_back) {
  for (uint64_t sequence = 1; sequence <= 100'000; ++sequence) {
    const auto is_done = [&](const Ring::Use& use) { return use.sequence + 2 <= sequence; };
    ASSERT_TRUE(ring.take(64 + sequence % 900, {sequence}, is_done)) << sequence;
  }
}

// Readers finish in any order that is possible for a ring: calls in order, rounds of one call in
// order.
TEST_F(RingTest, nothing_that_is_read_is_ever_overwritten) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    std::mt19937 random(seed);
    Ring fresh;
    fresh.set_place(kBegin, kNbytes);
    std::deque<Taken> read;
    std::size_t refused = 0, refused_in_a_row = 0;
    for (uint64_t sequence = 1; sequence <= 20'000; ++sequence) {
      const bool in_rounds = random() % 3 == 0;
      const Ring::Use use{sequence, in_rounds ? 0 : Ring::kByCall};
      const std::size_t nbytes = in_rounds ? 1 + random() % (kNbytes / 4) : 1 + random() % 3000;
      const auto is_free = [&](const Ring::Use& old) {
        return std::none_of(read.begin(), read.end(), [&](const Taken& t) {
          return t.use.sequence == old.sequence && t.use.round == old.round;
        });
      };
      const auto position = fresh.take(nbytes, use, is_free);
      if (!position) {
        ++refused;
        ASSERT_LT(++refused_in_a_row, 100U) << "although the oldest are done";
        if (!read.empty()) read.pop_front();
        continue;
      }
      refused_in_a_row = 0;
      const Taken taken{*position, nbytes, use};
      for (const Taken& other : read) ASSERT_FALSE(overlap(taken, other)) << seed << " " << sequence;
      read.push_back(taken);
      for (auto ends = random() % 3; ends > 0 && !read.empty(); --ends) read.pop_front();
    }
    EXPECT_GT(refused, 0U);
  }
}

}  // namespace
}  // namespace pc::shm
