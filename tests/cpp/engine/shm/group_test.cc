// Members of a group find each other in shared memory, and who sleeps hears of it.
#include "engine/shm/group.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "engine/shm/host.h"
#include "transport/shm/thread_neighbours.h"

namespace pc::shm {
namespace {

constexpr std::array<Rank, 3> kWorld = {0, 1, 2};

struct Member {
  Member(ThreadHost& memory, Rank rank)
      : neighbours(memory.neighbours_of(rank)),
        doorbell(Doorbell::create(*neighbours, rank, 3).value()),
        host(Host::create(*neighbours, *doorbell).value()),
        group(*host, 0, rank, kWorld, usual_limits(3)) {}
  bool joins() {
    group.awaited().clear();
    const Result<bool> joined = group.join();
    EXPECT_TRUE(joined.is_ok()) << joined.status().to_string();
    return joined.is_ok() && joined.value();
  }
  std::unique_ptr<Neighbours> neighbours;
  std::unique_ptr<Doorbell> doorbell;
  std::unique_ptr<Host> host;
  Group group;
};

TEST(SharedGroup, who_sleeps_until_the_first_comes_wakes_and_then_waits_for_the_next) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  Member first(*memory, 0), second(*memory, 1);
  ASSERT_FALSE(first.joins());
  EXPECT_EQ(first.group.awaited().back().peer, 1);

  CompletionQueue queue;
  first.host->list(queue, 7);
  ASSERT_FALSE(second.joins());  // it waits for rank 2, and so announces nothing
  EXPECT_EQ(first.doorbell->poll(), 1U);
  Completion woken;
  ASSERT_TRUE(queue.take(woken));
  EXPECT_EQ(woken.token, 7U);
  first.host->unlist(queue);

  ASSERT_FALSE(first.joins());
  EXPECT_EQ(first.group.awaited().back().peer, 2);
}

TEST(SharedGroup, what_was_read_in_an_array_counts_only_if_its_rank_has_not_given_the_call_up) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  Member reader(*memory, 0), lender(*memory, 1), other(*memory, 2);
  for (Member* const member : {&reader, &lender, &other, &reader, &lender, &other}) member->joins();
  ASSERT_TRUE(reader.joins());
  for (Member* const member : {&reader, &lender}) {
    ASSERT_TRUE(member->group.catch_up(1));
    member->group.announce(1, 77);
  }
  EXPECT_TRUE(reader.group.stands(1));
  lender.group.give_up();
  reader.group.awaited().clear();
  EXPECT_FALSE(reader.group.stands(1));
  EXPECT_EQ(reader.group.awaited().back().peer, 1);
}

TEST(SharedGroup, a_call_that_was_given_up_stays_so_when_the_next_one_is_given_up_too) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(3).value();
  Member reader(*memory, 0), lender(*memory, 1), other(*memory, 2);
  for (Member* const member : {&reader, &lender, &other, &reader, &lender, &other}) member->joins();
  for (Member* const member : {&reader, &lender, &other}) {
    ASSERT_TRUE(member->group.catch_up(1));
    member->group.announce(1, 77);
  }
  lender.group.give_up();
  ASSERT_TRUE(lender.group.catch_up(2));
  lender.group.announce(2, 78);
  lender.group.give_up();
  EXPECT_FALSE(reader.group.stands(1));  // it is still in the first
}

}  // namespace
}  // namespace pc::shm
