// Closed groups release their resources, whichever member closes first and whatever is in progress.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "world.h"

namespace pc::testing {
namespace {

class ClosedGroups : public ::testing::TestWithParam<Over> {
 protected:
  WorldOptions world(Rank size) const { return {.over = GetParam(), .size = size, .timeout_s = 60}; }
};

std::vector<Rank> ranks_of(Rank size) {
  std::vector<Rank> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Rank r contributes r + 1 + `salt` in every element.
Status sum_is_right(Communicator& group, std::size_t count, int salt) {
  const float size = static_cast<float>(group.size());
  std::vector<float> x(count, static_cast<float>(group.rank() + 1 + salt));
  Request request;
  request.collective = Collective::kAllreduce;
  request.in = {reinterpret_cast<const std::byte*>(x.data()), count, DType::kF32};
  request.out = {reinterpret_cast<std::byte*>(x.data()), count, DType::kF32};
  PC_TRY(group.run(request));
  const float wanted = size * (size + 1) / 2 + size * static_cast<float>(salt);
  for (const float each : x) {
    if (each != wanted)
      return Status(Code::kInternal, "a sum is " + std::to_string(each) + ", not " + std::to_string(wanted));
  }
  return Status::ok();
}

// Small calls, calls through rings and calls of many rounds: an area is reused after each of them.
TEST_P(ClosedGroups, a_rank_makes_more_of_them_in_its_life_than_it_can_have_at_a_time) {
  constexpr std::size_t kCounts[] = {1, 1, 700, 1, 1, 50'000};
  const Outcomes outcomes = run_world(world(2), [&](Runtime& runtime, Communicator&) -> Status {
    for (uint32_t i = 1; i <= 1100; ++i) {
      PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(i, {1, 0}));
      PC_TRY(sum_is_right(*group, kCounts[i % std::size(kCounts)], static_cast<int>(i)));
      if (runtime.group_count() != 1) return Status(Code::kInternal, "a closed group is still there");
      runtime.close_group(*group);
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(ClosedGroups, members_close_them_in_any_order_while_others_are_open) {
  for (const Rank size : {2, 3, 4, 5}) {
    const Outcomes outcomes = run_world(world(size), [&](Runtime& runtime, Communicator& all) -> Status {
      std::mt19937 random(static_cast<uint32_t>(all.rank()));  // each rank closes in another order
      std::vector<Communicator*> open;
      for (uint32_t i = 1; i <= 120; ++i) {
        PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(i, ranks_of(size)));
        PC_TRY(sum_is_right(*group, i % 5 == 0 ? 60'000 : i % 7, static_cast<int>(i)));
        open.push_back(group);
        std::shuffle(open.begin(), open.end(), random);
        while (open.size() > random() % 8) {
          runtime.close_group(*open.back());
          open.pop_back();
        }
        PC_TRY(sum_is_right(all, 10, static_cast<int>(i)));
      }
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << size << "\n" << text_of(outcomes);
  }
}

TEST_P(ClosedGroups, messages_that_no_rank_has_received_are_gone_with_them) {
  const Outcomes outcomes = run_world(world(2), [&](Runtime& runtime, Communicator& all) -> Status {
    for (uint32_t i = 1; i <= 40; ++i) {
      PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(i, {0, 1}));
      std::vector<float> x(100, 1);
      OutgoingMessage message;
      message.data = {reinterpret_cast<const std::byte*>(x.data()), x.size(), DType::kF32};
      message.peer = 1;
      if (all.rank() == 0) PC_TRY(group->send(message));
      PC_TRY(sum_is_right(*group, 3, 0));
      runtime.close_group(*group);
    }
    return sum_is_right(all, 3, 0);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(ClosedGroups, work_that_is_under_way_ends_and_may_outlive_them) {
  const Outcomes outcomes = run_world(world(2), [&](Runtime& runtime, Communicator& all) -> Status {
    std::vector<WorkPtr> kept;
    for (uint32_t i = 1; i <= 20; ++i) {
      PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(i, {0, 1}));
      PC_TRY(sum_is_right(*group, 10, 0));
      if (all.rank() == 0) {  // the other rank does not make this call
        PC_ASSIGN_OR_RETURN(WorkPtr work, group->launch(Request{}));
        kept.push_back(std::move(work));
      }
      runtime.close_group(*group);
      if (all.rank() != 0) continue;
      const Status ended = kept.back()->wait({Deadline::after(kLong)});
      if (ended.code() != Code::kNotInitialized)
        return Status(Code::kInternal, "ended with " + ended.to_string());
      if (i % 3 == 0) kept.clear();
    }
    return sum_is_right(all, 10, 0);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

INSTANTIATE_TEST_SUITE_P(Over, ClosedGroups,
                         ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared, Over::kDomains),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

// The closing member is named by its rank in the group, whatever its rank in the world is.
TEST(ClosedGroup, is_reported_to_a_member_that_comes_late_where_they_share_memory) {
  for (const std::vector<Rank>& members : std::vector<std::vector<Rank>>{{0, 1}, {2, 3}, {3, 2}}) {
    const WorldOptions options = {.over = Over::kShared, .size = 4, .timeout_s = 60, .log_fd = -1};
    const Outcomes outcomes = run_world(options, [&](Runtime& runtime, Communicator& all) -> Status {
      if (all.rank() != members[0] && all.rank() != members[1]) return sum_is_right(all, 10, 0);
      PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(1, members));
      if (group->rank() == 0) {
        PC_ASSIGN_OR_RETURN(WorkPtr work, group->launch(Request{}));
        work->progress();  // it searches for the other members
        runtime.close_group(*group);
      }
      PC_TRY(sum_is_right(all, 10, 0));
      if (all.rank() == members[0]) return Status::ok();
      const Status late = group->run(Request{}, kLong);
      const bool informed = late.code() == Code::kPeerExited && late.peer() == 0;
      return informed ? Status::ok() : Status(Code::kInternal, late.to_string());
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

// It does not matter which member makes the call: afterwards no member is left that could find the
// areas of the other members.
TEST(ClosedGroup, may_have_been_called_by_one_member_alone) {
  const WorldOptions options = {.over = Over::kShared, .size = 3, .timeout_s = 60, .log_fd = -1};
  const Outcomes outcomes = run_world(options, [&](Runtime& runtime, Communicator& all) -> Status {
    for (uint32_t i = 1; i <= 1100; ++i) {
      PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(i, {0, 1, 2}));
      if (all.rank() == static_cast<Rank>(i % 3)) {
        PC_ASSIGN_OR_RETURN(WorkPtr work, group->launch(Request{}));
        work->progress();
      }
      runtime.close_group(*group);
    }
    PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(2000, {2, 1, 0}));
    return sum_is_right(*group, 1000, 0);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Another member may send until it closes its part, however many groups are closed meanwhile, and
// none of the world's memory is lost.
TEST_P(ClosedGroups, what_members_send_to_them_later_takes_nothing_from_other_groups) {
  const Outcomes outcomes = run_world(world(2), [&](Runtime& runtime, Communicator& all) -> Status {
    std::vector<float> x(800, 1), large(100'000, 1);
    for (uint32_t round = 0; round < 15; ++round) {
      std::vector<Communicator*> open;
      for (uint32_t i = 1; i <= 40; ++i) {
        PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(round * 40 + i, {0, 1}));
        open.push_back(group);
      }
      if (all.rank() == 1)
        for (Communicator* const group : open) runtime.close_group(*group);
      PC_TRY(sum_is_right(all, 3, 0));
      if (all.rank() == 0) {
        for (Communicator* const group : open) {
          OutgoingMessage message;
          message.peer = 1;
          message.data = {reinterpret_cast<const std::byte*>(x.data()), x.size(), DType::kF32};
          PC_TRY(group->send(message));
          message.data = {reinterpret_cast<const std::byte*>(large.data()), large.size(), DType::kF32};
          PC_TRY(group->send(message));
          runtime.close_group(*group);
        }
      }
      PC_TRY(sum_is_right(all, 60'000, 0));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
