// Groups beside each other: who sits where, and that nobody's wrong elements are lost.
#include "bench/seat.h"

#include <gtest/gtest.h>

#include "world.h"

namespace pc::bench {
namespace {

using testing::run_world;

struct Seen {
  Rank size = 0;  // of the group; 0: stands by
  bool prints = false;
  std::optional<uint64_t> wrong;
};

// What each rank sees when every member of a group has found as many wrong elements as its first rank's number.
std::vector<Seen> seen(Rank size, const std::string& words, bool checks = true) {
  std::vector<Seen> all(static_cast<std::size_t>(size));
  const auto outcomes = run_world({.size = size}, [&](Runtime& runtime, Communicator& world) -> Status {
    Seen& mine = all[static_cast<std::size_t>(world.rank())];
    PC_ASSIGN_OR_RETURN(const Seat seat, take_seat(runtime, words));
    mine.prints = seat.prints;
    std::optional<Row> row;
    if (seat.group != nullptr) {
      mine.size = seat.group->size();
      row.emplace();
      if (checks) row->wrong = static_cast<uint64_t>(seat.group->world_ranks()[0]) + 10;
      PC_TRY(seat.group->run(Request{}));
    }
    PC_TRY(meet(world, seat, row));
    if (row) mine.wrong = row->wrong;
    return Status::ok();
  });
  EXPECT_TRUE(testing::all_ok(outcomes)) << testing::text_of(outcomes);
  return all;
}

TEST(BenchSeat, without_groups_all_ranks_are_in_the_world_and_its_first_prints) {
  const std::vector<Seen> all = seen(3, "");
  for (const Seen& each : all) EXPECT_EQ(each.size, 3);
  EXPECT_TRUE(all[0].prints && !all[1].prints && !all[2].prints);
}

TEST(BenchSeat, who_is_not_in_the_group_stands_by_and_its_first_rank_prints) {
  const std::vector<Seen> all = seen(4, "3,1");
  EXPECT_EQ(all[0].size, 0);
  EXPECT_EQ(all[1].size, 2);
  EXPECT_EQ(all[2].size, 0);
  EXPECT_EQ(all[3].size, 2);
  EXPECT_TRUE(all[3].prints && !all[0].prints && !all[1].prints && !all[2].prints);
  EXPECT_EQ(all[3].wrong, 13u);
}

TEST(BenchSeat, wrong_elements_of_every_group_are_counted_once) {
  const std::vector<Seen> all = seen(5, "even-odd");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_EQ(all[rank].size, rank % 2 == 0 ? 3 : 2);
    EXPECT_EQ(all[rank].prints, rank == 0);
    EXPECT_EQ(all[rank].wrong, 21u);  // 10 and 11
  }
}

TEST(BenchSeat, what_was_not_checked_stays_so) {
  for (const Seen& each : seen(2, "even-odd", false)) EXPECT_EQ(each.wrong, std::nullopt);
}

}  // namespace
}  // namespace pc::bench
