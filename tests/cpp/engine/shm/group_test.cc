// Members of a group find each other in shared memory, and a sleeping member is woken.
#include "engine/shm/group.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "engine/shm/member.h"

namespace pc::shm {
namespace {

TEST(SharedGroup, a_sleeping_member_wakes_when_another_joins_and_then_waits_for_the_next) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  Member first(*memory, 0, 3), second(*memory, 1, 3);
  ASSERT_FALSE(first.joins());
  EXPECT_EQ(first.group.awaited().back().peer, 1);

  CompletionQueue queue;
  first.host->list(queue, 7);
  ASSERT_FALSE(second.joins());  // it waits for rank 2, and so announces nothing
  EXPECT_EQ(first.wakeup->poll(), 1U);
  Completion woken;
  ASSERT_TRUE(queue.take(woken));
  EXPECT_EQ(woken.token, 7U);
  first.host->unlist(queue);

  ASSERT_FALSE(first.joins());
  EXPECT_EQ(first.group.awaited().back().peer, 2);
}

TEST(SharedGroup, what_was_read_in_an_array_counts_only_if_its_rank_has_not_given_the_call_up) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  Member reader(*memory, 0, 3), exposer(*memory, 1, 3), other(*memory, 2, 3);
  for (Member* const member : {&reader, &exposer, &other, &reader, &exposer, &other}) member->joins();
  ASSERT_TRUE(reader.joins());
  for (Member* const member : {&reader, &exposer}) {
    ASSERT_TRUE(member->group.catch_up(1));
    member->group.announce(1, 77);
  }
  EXPECT_TRUE(reader.group.stays_exposed(1));
  exposer.group.give_up();
  reader.group.awaited().clear();
  EXPECT_FALSE(reader.group.stays_exposed(1));
  EXPECT_EQ(reader.group.awaited().back().peer, 1);
}

TEST(SharedGroup, a_call_that_was_given_up_stays_so_when_the_next_one_is_given_up_too) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  Member reader(*memory, 0, 3), exposer(*memory, 1, 3), other(*memory, 2, 3);
  for (Member* const member : {&reader, &exposer, &other, &reader, &exposer, &other}) member->joins();
  for (Member* const member : {&reader, &exposer, &other}) {
    ASSERT_TRUE(member->group.catch_up(1));
    member->group.announce(1, 77);
  }
  exposer.group.give_up();
  ASSERT_TRUE(exposer.group.catch_up(2));
  exposer.group.announce(2, 78);
  exposer.group.give_up();
  EXPECT_FALSE(reader.group.stays_exposed(1));  // it is still in the first call
}

struct Three {
  Three() {
    for (int round = 0; round < 2; ++round) {
      for (Member& member : members) member.joins();
    }
  }
  Group& operator[](std::size_t rank) { return members[rank].group; }
  // All members announce that call, after the exchange it requires. Every member sees that the
  // others have announced it.
  void make_call(uint64_t sequence) {
    bool all = false;
    for (int round = 0; round < 64 && !all; ++round) {
      all = true;
      for (Member& member : members) all = member.group.catch_up(sequence) && all;
    }
    ASSERT_TRUE(all);
    for (Member& member : members) member.group.announce(sequence, 77);
    for (Member& member : members) {
      for (Rank peer = 0; peer < 3; ++peer)
        EXPECT_EQ(member.group.look(peer), Group::Seen::kSame) << sequence;
    }
  }
  std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  std::array<Member, 3> members = {Member(*memory, 0, 3), Member(*memory, 1, 3), Member(*memory, 2, 3)};
};

TEST(SharedGroup, calls_that_are_not_made_here_cost_no_exchange) {
  Three world;
  for (const uint64_t sequence : {1, 2, 4, 6, 7, 1000, 1001}) world.make_call(sequence);
  EXPECT_TRUE(world[0].catch_up(2000));  // without any exchange
}

TEST(SharedGroup, numbers_that_are_far_from_each_other_keep_their_order) {
  Three world;
  for (const uint64_t sequence : {1UL, 3'000'000'000UL, 3'000'000'001UL, 20'000'000'000UL, 20'000'000'002UL})
    world.make_call(sequence);
}

TEST(SharedGroup, no_rank_overwrites_an_announcement_that_another_may_still_read) {
  Three world;
  world.make_call(1);
  ASSERT_TRUE(world[0].catch_up(3) && world[1].catch_up(3));
  world[0].announce(3, 77);
  world[1].announce(3, 77);
  EXPECT_FALSE(world[0].catch_up(4));  // rank 2 may still read the announcement of call 1
  EXPECT_EQ(world[0].awaited().back().peer, 2);
  ASSERT_TRUE(world[2].catch_up(3));
  world[2].announce(3, 77);
  EXPECT_TRUE(world[0].awaited().back().has_changed());
  EXPECT_TRUE(world[0].catch_up(4));
}

TEST(SharedGroup, the_leader_reads_the_other_announcements_before_it_makes_its_own) {
  Three world;
  world.make_call(1);
  ASSERT_TRUE(world[0].catch_up_to_lead(2, 77));
  EXPECT_EQ(world[0].look(1), Group::Seen::kNothing);
  ASSERT_TRUE(world[1].catch_up(2));
  world[1].announce(2, 78);
  EXPECT_EQ(world[0].look(1), Group::Seen::kOther);
}

// Otherwise the leader would wait for the announcements of the other members, and they would wait
// for an announcement that the leader never makes.
TEST(SharedGroup, no_rank_waits_for_a_call_that_its_leader_gave_up) {
  Three world;
  world.make_call(1);
  ASSERT_TRUE(world[1].catch_up(2));
  world[1].announce(2, 77);
  EXPECT_FALSE(world[1].catch_up(3));
  ASSERT_TRUE(world[2].catch_up(3));  // rank 2 dropped call 2 before it announced it
  world[2].announce(3, 77);
  ASSERT_TRUE(world[0].catch_up_to_lead(3, 77));
  ASSERT_TRUE(world[1].catch_up(3));
  world[1].announce(3, 77);
  EXPECT_EQ(world[0].look(1), Group::Seen::kSame);
  EXPECT_EQ(world[0].look(2), Group::Seen::kSame);
}

// Publishes messages of consecutive rounds until there is no room. Returns the number of messages.
uint32_t fill(Group& group, StreamKind kind, uint64_t sequence) {
  group.awaited().clear();
  for (uint32_t round = 0; round < 1000; ++round) {
    const std::optional<uint64_t> room =
        group.allocate(group.limits().largest_message() / 2, {sequence, round, kind});
    if (!room) return round;
    group.publish(kind, round, *room);
  }
  ADD_FAILURE() << "there is always room";
  return 0;
}

TEST(SharedGroup, a_call_that_the_other_ranks_have_skipped_frees_its_ring_memory) {
  Three world;
  world.make_call(1);
  ASSERT_TRUE(world[0].make_rings().is_ok() && world[0].catch_up(2));
  world[0].announce(2, 77);
  ASSERT_GT(fill(world[0], kInputs, 2), 0U);
  world[0].give_up();
  for (Group* const group : {&world[1], &world[2]}) {
    ASSERT_TRUE(group->catch_up(3));
    group->announce(3, 78);
  }
  ASSERT_TRUE(world[0].catch_up(3));
  EXPECT_TRUE(world[0].allocate(100, {3, Ring::kByCall, kInputs}));
  world[0].announce(3, 78);
  EXPECT_GT(fill(world[0], kInputs, 3), 0U);
}

TEST(SharedGroup, a_rank_still_in_a_call_is_waited_for_even_if_another_has_gone_on) {
  Three world;
  world.make_call(1);
  ASSERT_TRUE(world[0].make_rings().is_ok() && world[0].catch_up(2) && world[1].catch_up(2));
  world[0].announce(2, 77);
  world[1].announce(2, 77);
  ASSERT_TRUE(world[2].catch_up(3));
  world[2].announce(3, 78);
  ASSERT_GT(fill(world[0], kInputs, 2), 0U);
  ASSERT_EQ(world[0].awaited().size(), 1U);
  EXPECT_EQ(world[0].awaited().back().peer, 1);
  world[1].give_up();
  EXPECT_TRUE(world[0].awaited().back().has_changed());
  EXPECT_TRUE(world[0].allocate(100, {2, 100, kInputs}));
}

// In a reduce_scatter no member reads results, but the inter-domain groups of other hosts write
// them.
TEST(SharedGroup, what_is_held_is_not_free_though_all_have_read_it) {
  Three world;
  world.make_call(1);
  ASSERT_TRUE(world[0].make_rings().is_ok());
  world.make_call(2);
  for (std::size_t rank = 0; rank < 3; ++rank) world[rank].set_read(kResults, kAllRounds);
  world[0].hold(kResults, 0);
  const uint32_t fit = fill(world[0], kResults, 2);
  ASSERT_GT(fit, 0U);
  EXPECT_TRUE(world[0].awaited().empty());
  world[0].hold(kResults, 1);
  const std::size_t nbytes = world[0].limits().largest_message() / 2;
  EXPECT_TRUE(world[0].allocate(nbytes, {2, fit, kResults}));
  EXPECT_FALSE(world[0].allocate(nbytes, {2, fit + 1, kResults}));
  world[0].give_up();
  EXPECT_TRUE(world[0].allocate(nbytes, {2, fit + 1, kResults}));
}

}  // namespace
}  // namespace pc::shm
