// Which ranks measure together, and that wrong elements of concurrent groups are all counted.
#include "bench/groups.h"

#include <gtest/gtest.h>

#include "world.h"

namespace pc::bench {
namespace {

using Groups = std::vector<std::vector<Rank>>;

Groups read(const std::string& words, Rank size) {
  const Result<Groups> found = groups(words, size);
  EXPECT_TRUE(found.is_ok()) << words;
  return found.is_ok() ? found.value() : Groups();
}

TEST(BenchGroups, a_rank_is_in_one_group_at_most_and_the_order_is_the_given_one) {
  EXPECT_EQ(read("", 3), (Groups{{0, 1, 2}}));
  EXPECT_EQ(read("3,1", 4), (Groups{{3, 1}}));
  EXPECT_EQ(read("even-odd", 5), (Groups{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(read("even-odd", 2), (Groups{{0}, {1}}));
}

TEST(BenchGroups, ranks_that_are_not_there_are_refused) {
  for (const char* const words : {"4", "-1", "x", "0,", "0,1,0", "odd-even"})
    EXPECT_FALSE(groups(words, 4).is_ok()) << words;
  EXPECT_FALSE(groups("even-odd", 1).is_ok());
}

struct Seen {
  Rank size = 0;  // of the group; 0 for a rank that is in no group
  bool prints = false;
  std::optional<uint64_t> wrong;
};

// Returns what each rank sees. Every member of a group has found 10 wrong elements plus the number
// of the group's first rank.
std::vector<Seen> seen(Rank size, const std::string& words, bool checks = true) {
  std::vector<Seen> all(static_cast<std::size_t>(size));
  const auto outcomes =
      testing::run_world({.size = size}, [&](Runtime& runtime, Communicator& world) -> Status {
        Seen& mine = all[static_cast<std::size_t>(world.rank())];
        PC_ASSIGN_OR_RETURN(const Membership own, join_group(runtime, words));
        mine.prints = own.prints;
        if (own.group != nullptr) {
          mine.size = own.group->size();
          if (checks) mine.wrong = static_cast<uint64_t>(own.group->world_ranks()[0]) + 10;
          PC_TRY(own.group->run(Request{}));
        }
        return sum_over_groups(own, mine.wrong);
      });
  EXPECT_TRUE(testing::all_ok(outcomes)) << testing::text_of(outcomes);
  return all;
}

TEST(BenchGroups, without_groups_all_ranks_are_in_the_world_and_its_first_prints) {
  const std::vector<Seen> all = seen(3, "");
  for (const Seen& each : all) EXPECT_EQ(each.size, 3);
  EXPECT_TRUE(all[0].prints && !all[1].prints && !all[2].prints);
}

TEST(BenchGroups, ranks_outside_the_group_are_idle_and_its_first_rank_prints) {
  const std::vector<Seen> all = seen(4, "3,1");
  EXPECT_EQ(all[0].size, 0);
  EXPECT_EQ(all[1].size, 2);
  EXPECT_EQ(all[2].size, 0);
  EXPECT_EQ(all[3].size, 2);
  EXPECT_TRUE(all[3].prints && !all[0].prints && !all[1].prints && !all[2].prints);
  EXPECT_EQ(all[3].wrong, 13u);
}

TEST(BenchGroups, wrong_elements_of_every_group_are_counted_once) {
  const std::vector<Seen> all = seen(5, "even-odd");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_EQ(all[rank].size, rank % 2 == 0 ? 3 : 2);
    EXPECT_EQ(all[rank].prints, rank == 0);
    EXPECT_EQ(all[rank].wrong, 21u);  // 10 in the group of rank 0, and 11 in that of rank 1
  }
}

TEST(BenchGroups, what_was_not_checked_stays_so) {
  for (const Seen& each : seen(2, "even-odd", false)) EXPECT_EQ(each.wrong, std::nullopt);
}

}  // namespace
}  // namespace pc::bench
