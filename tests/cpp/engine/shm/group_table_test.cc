// Who of which island does what.
#include "engine/shm/hier/group_table.h"

#include <gtest/gtest.h>

namespace pc::shm {
namespace {

// Ranks 0, 2 and 3 on one island, 1 and 4 on another.
constexpr Rank kIslandOf[] = {7, 9, 7, 7, 9};

TEST(GroupTable, knows_the_islands_of_a_group_in_any_order) {
  const GroupTable table(kIslandOf, 4);
  EXPECT_EQ(table.shape(), (Islands{2, 2, 3}));
  EXPECT_EQ(table.own_island(), 1);
  EXPECT_EQ(table.own_place(), 1);
  EXPECT_EQ(table.members(), (std::vector<Rank>{1, 4}));
  EXPECT_EQ(table.island_of(3), 0);
  EXPECT_EQ(table.place_here(1), 0);
  EXPECT_EQ(table.place_here(2), -1);
}

TEST(GroupTable, a_column_has_one_rank_of_each_island_and_the_root_stands_for_its_own) {
  const GroupTable table(kIslandOf, 0);
  EXPECT_EQ(table.column(0), (std::vector<Rank>{0, 1}));
  EXPECT_EQ(table.column(1), (std::vector<Rank>{2, 4}));
  EXPECT_EQ(table.column(0, 3), (std::vector<Rank>{3, 1}));
}

TEST(GroupTable, what_goes_by_islands) {
  Request request;
  const Islands even{2, 2, 2}, uneven{2, 1, 2};
  for (const Islands& none : {Islands{1, 4, 4}, Islands{4, 1, 1}})
    EXPECT_FALSE(goes_by_islands(request, none));
  request.collective = Collective::kAllreduce;
  EXPECT_TRUE(goes_by_islands(request, even) && goes_by_islands(request, uneven));
  request.op = ReduceOp::kAvg;
  EXPECT_TRUE(goes_by_islands(request, even));
  EXPECT_FALSE(goes_by_islands(request, uneven));
  request.collective = Collective::kAlltoall;
  EXPECT_FALSE(goes_by_islands(request, even));
  request.collective = Collective::kAllgather;
  EXPECT_TRUE(goes_by_islands(request, even));
  EXPECT_FALSE(goes_by_islands(request, uneven));
  const std::vector<uint64_t> counts = {1, 2, 3, 4};
  request.counts = counts;
  EXPECT_FALSE(goes_by_islands(request, even));
}

TEST(GroupTable, small_arrays_are_not_cut) {
  EXPECT_EQ(slices_of(Collective::kAllreduce, 8, {2, 2, 4}), 1U);
  EXPECT_EQ(slices_of(Collective::kAllreduce, 1 << 20, {2, 2, 4}), 2U);
  EXPECT_EQ(slices_of(Collective::kBroadcast, 1 << 20, {2, 2, 4}), 1U);
}

}  // namespace
}  // namespace pc::shm
