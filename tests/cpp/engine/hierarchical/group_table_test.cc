// The tasks of each rank and domain.
#include "engine/hierarchical/group_table.h"

#include <gtest/gtest.h>

#include "plan/algorithms/binomial_tree.h"

namespace pc::shm {
namespace {

// Ranks 0, 2 and 3 in one domain, 1 and 4 in another.
constexpr Rank kDomainOf[] = {7, 9, 7, 7, 9};

TEST(GroupTable, knows_the_domains_of_a_group_in_any_order) {
  const GroupTable table(kDomainOf, 4);
  EXPECT_EQ(table.shape(), (ShmDomains{2, 2, 3, {0, 1, 0, 0, 1}}));
  EXPECT_EQ(table.own_domain(), 1);
  EXPECT_EQ(table.own_place(), 1);
  EXPECT_EQ(table.members(), (std::vector<Rank>{1, 4}));
  EXPECT_EQ(table.domain_of(3), 0);
  EXPECT_EQ(table.place_here(1), 0);
  EXPECT_EQ(table.place_here(2), -1);
}

TEST(GroupTable, an_inter_group_has_one_rank_of_each_domain) {
  const GroupTable table(kDomainOf, 0);
  EXPECT_EQ(table.inter_group(0), (std::vector<Rank>{0, 1}));
  EXPECT_EQ(table.inter_group(1), (std::vector<Rank>{2, 4}));
}

constexpr uint64_t kLarge = 64 << 20;

TEST(GroupTable, which_calls_are_hierarchical) {
  Request request;
  const ShmDomains even{2, 2, 2}, uneven{2, 1, 2};
  for (const ShmDomains& none : {ShmDomains{1, 4, 4}, ShmDomains{4, 1, 1}})
    EXPECT_FALSE(is_hierarchical(request, kLarge, none));
  request.collective = Collective::kAllreduce;
  EXPECT_TRUE(is_hierarchical(request, kLarge, even) && is_hierarchical(request, kLarge, uneven));
  request.op = ReduceOp::kAvg;
  EXPECT_TRUE(is_hierarchical(request, kLarge, even));
  EXPECT_FALSE(is_hierarchical(request, kLarge, uneven));
  request.collective = Collective::kAlltoall;
  EXPECT_FALSE(is_hierarchical(request, kLarge, even));
  request.collective = Collective::kAllgather;
  EXPECT_TRUE(is_hierarchical(request, kLarge, even));
  EXPECT_FALSE(is_hierarchical(request, kLarge, uneven));
  const std::vector<uint64_t> counts = {1, 2, 3, 4};
  request.counts = counts;
  EXPECT_FALSE(is_hierarchical(request, kLarge, even));
}

TEST(GroupTable, rooted_calls_are_hierarchical_where_that_saves_messages_between_domains) {
  const ShmDomains in_order{2, 2, 2, {0, 0, 1, 1}}, interleaved{2, 2, 2, {0, 1, 0, 1}};
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    Request request;
    request.collective = collective;
    EXPECT_TRUE(is_hierarchical(request, 8, in_order));  // the root leads its domain and does not wait
    EXPECT_FALSE(is_hierarchical(request, kLarge, in_order));
    EXPECT_TRUE(is_hierarchical(request, kLarge, interleaved));
    request.root = 1;
    EXPECT_TRUE(is_hierarchical(request, kLarge, in_order));
  }
}

// The expected number comes from the plans' tree.
TEST(GroupTable, edges_between_domains_are_those_of_the_tree_that_plans_use) {
  const ShmDomains domains{3, 2, 4, {0, 1, 0, 2, 2, 0, 1, 2, 2}};
  for (Rank root = 0; root < 9; ++root) {
    Rank edges = 0;
    for (Rank rank = 0; rank < 9; ++rank) {
      const Rank parent = binomial_tree(rank, root, 9).parent;
      if (parent >= 0)
        edges += domains.domain_of[static_cast<std::size_t>(rank)] !=
                         domains.domain_of[static_cast<std::size_t>(parent)]
                     ? 1
                     : 0;
    }
    EXPECT_EQ(count_tree_edges_between(domains, root), edges) << root;
  }
}

TEST(GroupTable, small_arrays_are_not_cut) {
  EXPECT_TRUE(goes_through_leaders(Collective::kAllreduce, 8));
  EXPECT_FALSE(goes_through_leaders(Collective::kAllreduce, 1 << 20));
  EXPECT_EQ(slices_of(Collective::kAllreduce, {2, 2, 4}), 2U);
  EXPECT_EQ(slices_of(Collective::kBroadcast, {2, 2, 4}), 1U);
}

}  // namespace
}  // namespace pc::shm
