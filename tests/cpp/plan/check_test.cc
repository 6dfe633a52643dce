#include <gtest/gtest.h>

#include <set>

#include "plan/builder.h"
#include "plan/worlds.h"

namespace pc {
namespace {

class Catalogued : public testing::TestWithParam<Algorithm> {};

// Checks the plans of `first` to `last` ranks, every root and split. Returns how many it checked.
std::size_t check_worlds(const Algorithm& algorithm, Rank first, Rank last) {
  const bool rooted = is_rooted(algorithm.collective);
  std::size_t worlds = 0;
  for (Rank size = first; size <= last; ++size) {
    std::set<Rank> roots{0};
    for (Rank root = 1; rooted && root < size; ++root) {
      if (size <= 16 || root == 1 || root == size / 2 || root == size - 1) roots.insert(root);
    }
    for (const Rank root : roots) {
      for (const uint32_t split : {1U, 2U, 3U, 8U}) {
        if (algorithm.pipelines == Pipelines::kNot && split > 1) continue;
        for (const bool even : {true, false}) {
          if (!even && !has_parts(algorithm.collective)) continue;
          if (!algorithm.supports({algorithm.collective, 0, size, root, split, even})) continue;
          const Status status = check(build_all(algorithm, size, root, split, even));
          EXPECT_TRUE(status.is_ok()) << "size " << size << " root " << root << " split " << split
                                      << (even ? " even\n" : " uneven\n") << status.to_string();
          if (!status.is_ok()) return worlds;
          ++worlds;
        }
      }
    }
  }
  return worlds;
}

// A check takes the cube of the size, so the sizes are divided into three cases, each far from its
// deadline. At least the powers of two are supported.
TEST_P(Catalogued, checks_for_1_to_44_ranks_every_root_and_split) {
  EXPECT_GE(check_worlds(GetParam(), 1, 44), 6U);
}

TEST_P(Catalogued, checks_for_45_to_56_ranks_every_root_and_split) { check_worlds(GetParam(), 45, 56); }

TEST_P(Catalogued, checks_for_57_to_64_ranks_every_root_and_split) {
  EXPECT_GE(check_worlds(GetParam(), 57, 64), 1U);
}

TEST_P(Catalogued, is_found_by_its_name) {
  const Algorithm* found = find_algorithm(GetParam().collective, GetParam().name);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->build, GetParam().build);
  EXPECT_EQ(found->build({GetParam().collective, 0, 4, 0, 2}).algorithm, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Plans, Catalogued, testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& test) { return title_of(test.param); });

TEST(Catalog, does_not_find_what_is_not_there) {
  EXPECT_EQ(find_algorithm(Collective::kBarrier, "ring"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::kAllreduce, ""), nullptr);
}

TEST(Catalog, refuses_shapes_that_make_no_sense) {
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_FALSE(algorithm.supports({algorithm.collective, 0, 0, 0, 1}));
    EXPECT_FALSE(algorithm.supports({algorithm.collective, 4, 4, 0, 1}));
    EXPECT_FALSE(algorithm.supports({algorithm.collective, 0, 4, 4, 1}));
    EXPECT_FALSE(algorithm.supports({algorithm.collective, 0, 4, 0, 0}));
    EXPECT_FALSE(algorithm.supports({algorithm.collective, 0, 65536, 0, 1}));
  }
}

TEST(RecursiveDoubling, needs_three_steps_between_two_ranks) {
  const Plan plan =
      find_algorithm(Collective::kAllreduce, "recursive_doubling")->build({Collective::kAllreduce, 0, 2});
  EXPECT_EQ(plan.steps.size(), 3U);
}

TEST(BinomialReduce, never_needs_more_than_two_chunks_of_scratch) {
  for (const Plan& plan : build_all(*find_algorithm(Collective::kReduce, "binomial"), 16, 5, 8)) {
    EXPECT_LE(plan.scratch_chunks, 2U);
  }
}

// Known errors. Each must be refused, by the rule that is meant for it.
std::vector<Plan> allreduce_of(Rank size, uint32_t scratch, void (*write)(PlanBuilder&, Rank self)) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    PlanBuilder builder("test", {Collective::kAllreduce, rank, size}, 1, scratch);
    write(builder, rank);
    plans.push_back(builder.take());
  }
  return plans;
}

TEST(Check, refuses_to_add_into_memory_that_is_being_sent) {
  const Status status = check(allreduce_of(2, 0, [](PlanBuilder& plan, Rank self) {
    plan.send(1 - self, output(0));
    plan.recv_reduce(1 - self, output(0), {.dst = 1, .src = 1});
  }));
  EXPECT_EQ(status.to_string(),
            "test allreduce of 2 ranks on rank 0: step 1 (recv_reduce chunk 0 <- rank 1) may write its "
            "memory while step 0 "
            "(send chunk 0 -> rank 1) still reads it: nothing orders them (a send reads until it is "
            "complete: see `after`)");
}

TEST(Check, looks_at_every_chunk_of_a_message_for_hazards) {
  const Place both{Area::kOutput, {0, 2}, {0, 2}};
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder builder("test", {Collective::kAllreduce, rank, 2}, 2);
    builder.send(1 - rank, rank == 0 ? both : output(1));
    builder.recv(1 - rank, rank == 0 ? output(1) : both);
    plans.push_back(builder.take());
  }
  EXPECT_NE(check(plans).message().find("step 0 (send chunks 0..1 -> rank 1) still reads it"),
            std::string::npos)
      << check(plans).to_string();
}

TEST(Check, refuses_ranks_that_wait_for_each_other) {
  const Status status = check(allreduce_of(2, 1, [](PlanBuilder& plan, Rank self) {
    plan.recv(1 - self, scratch(0, 0));
    plan.send(1 - self, output(0));
    plan.after(2).reduce(scratch(0, 0), output(0), {.dst = 1, .src = 1});
  }));
  EXPECT_EQ(status.to_string(),
            "test allreduce of 2 ranks on rank 0: step 0 (recv chunk 0 into scratch 0 <- rank 1) never ends: "
            "it waits for "
            "rank 1's step 0 (recv chunk 0 into scratch 0 <- rank 0): it waits for rank 0's step 0 (recv "
            "chunk 0 into "
            "scratch 0 <- rank 1), and so on in a circle (deadlock)");
}

TEST(Check,
     // completes over sockets, hangs without buffers
     refuses_to_wait_for_a_send_before_receiving_the_peers) {
  const Status status = check(allreduce_of(2, 1, [](PlanBuilder& plan, Rank self) {
    const uint32_t sent = plan.send(1 - self, output(0));
    plan.after(sent).recv(1 - self, scratch(0, 0));
    plan.reduce(scratch(0, 0), output(0), {.dst = 1, .src = 1});
  }));
  EXPECT_NE(status.message().find("(deadlock)"), std::string::npos) << status.to_string();
}

TEST(Check, refuses_wrong_weights) {
  const Status status = check(allreduce_of(2, 1, [](PlanBuilder& plan, Rank self) {
    const uint32_t sent = plan.send(1 - self, output(0));
    plan.recv(1 - self, scratch(0, 0));
    plan.after(sent).reduce(scratch(0, 0), output(0), {.dst = self == 1 ? 2 : 1, .src = 1});
  }));
  EXPECT_EQ(status.rank(), 1);
  EXPECT_NE(status.message().find("beyond the number of ranks"), std::string::npos) << status.to_string();
}

TEST(Check, refuses_weights_that_do_not_fit_the_data) {
  std::vector<Plan> plans = build_all(*find_algorithm(Collective::kAllreduce, "ring"), 3, 0, 1);
  plans[2].steps[1].src_weight = 2;
  EXPECT_EQ(check(plans).to_string(),
            "ring allreduce of 3 ranks on rank 2: step 1 (recv_reduce chunk 1 <- rank 1) says src_weight 2, "
            "but gets 1 of 3 "
            "contributions");
}

TEST(Check, refuses_messages_without_another_end) {
  const Status unreceived = check(allreduce_of(2, 0, [](PlanBuilder& plan, Rank self) {
    if (self == 0) plan.send(1, output(0));
  }));
  EXPECT_EQ(unreceived.to_string(),
            "test allreduce of 2 ranks on rank 0: step 0 (send chunk 0 -> rank 1) is never received");
  EXPECT_EQ(unreceived.peer(), 1);
  const Status unsent = check(allreduce_of(2, 0, [](PlanBuilder& plan, Rank self) {
    if (self == 0) plan.recv(1, output(0));
  }));
  EXPECT_NE(unsent.message().find("waits for a message that is never sent"), std::string::npos)
      << unsent.to_string();
}

TEST(Check, refuses_messages_that_name_different_chunks_on_sender_and_receiver) {
  std::vector<Plan> plans = build_all(*find_algorithm(Collective::kAllreduce, "ring"), 3, 0, 1);
  plans[1].steps[0].src.first = 0;
  EXPECT_EQ(check(plans).to_string(),
            "ring allreduce of 3 ranks on rank 2: step 1 (recv_reduce chunk 1 <- rank 1) gets other chunks "
            "than it names: "
            "rank 1 sends them in its step 0 (send chunk 0 -> rank 2)");
}

TEST(Check, refuses_a_wrong_result) {
  const Status status = check(allreduce_of(2, 0, [](PlanBuilder&, Rank) {}));
  EXPECT_EQ(status.to_string(),
            "test allreduce of 2 ranks on rank 0: the plan ends with a wrong chunk 0: it holds 1 of 2 "
            "contributions");
}

TEST(Check, refuses_to_write_the_callers_array_off_the_root) {
  std::vector<Plan> plans = build_all(*find_algorithm(Collective::kReduce, "binomial"), 4, 0, 1);
  plans[2].steps[0].dst_area = Area::kInput;
  EXPECT_FALSE(check(plans).is_ok());
  plans = build_all(*find_algorithm(Collective::kReduce, "binomial"), 4, 0, 1);
  plans[1].steps[0].src_area = Area::kOutput;
  EXPECT_EQ(check(plans).to_string(),
            "binomial reduce of 4 ranks on rank 1: step 0 (send chunk 0 -> rank 0) uses memory that this "
            "rank does not have");
}

TEST(Check, refuses_to_read_the_input_once_the_output_was_written) {  // in place they are the same memory
  const Status status = check(allreduce_of(2, 1, [](PlanBuilder& plan, Rank self) {
    plan.recv(1 - self, scratch(0, 0));
    plan.reduce(scratch(0, 0), output(0), {.dst = 1, .src = 1});
    plan.lane(1).after(2).copy(input(0), scratch(0, 0));
    plan.lane(0).after(0);
  }));
  EXPECT_FALSE(status.is_ok());
  std::vector<Plan> plans = build_all(*find_algorithm(Collective::kAllreduce, "recursive_doubling"), 2, 0, 1);
  for (Plan& plan : plans) {
    Step extra{.kind = StepKind::kCopy,
               .src_area = Area::kInput,
               .dst_area = Area::kScratch,
               .src = {0, 1},
               .dst = {0, 1}};
    plan.steps.push_back(extra);
  }
  EXPECT_NE(check(plans).message().find("same memory in place"), std::string::npos)
      << check(plans).to_string();
}

TEST(Check, refuses_a_barrier_that_a_rank_can_leave_early) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {  // one round of three ranks: no rank has received from all others
    PlanBuilder builder("test", {Collective::kBarrier, rank, 3}, 0);
    builder.send((rank + 1) % 3, nothing());
    builder.recv((rank + 2) % 3, nothing());
    plans.push_back(builder.take());
  }
  EXPECT_EQ(check(plans).to_string(),
            "test barrier of 3 ranks on rank 0: the plan can end before rank 1 has begun");
}

TEST(Check,
     // over a socket completion only means "copied"
     does_not_take_a_completed_send_for_news_from_the_receiver) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder builder("test", {Collective::kBarrier, rank, 2}, 0);
    if (rank == 0) builder.send(1, nothing());
    if (rank == 1) builder.recv(0, nothing());
    plans.push_back(builder.take());
  }
  EXPECT_EQ(check(plans).to_string(),
            "test barrier of 2 ranks on rank 0: the plan can end before rank 1 has begun");
}

// One step of rank 2 of 4 in a binomial reduce (copy 0, recv_reduce 1, send 2), edited so that it
// is meaningless.
TEST(Check, refuses_steps_that_mean_nothing) {
  struct Case {
    std::size_t step;
    void (*edit)(Step&);
    const char* what;
  };
  const Case cases[] = {
      {0, [](Step& s) { s.kind = static_cast<StepKind>(5); }, "is of no known kind"},
      {0, [](Step& s) { s.lane = 1; }, "is in a lane that the plan does not have"},
      {1, [](Step& s) { s.after = 2; }, "waits for a step that is not before it"},
      {2, [](Step& s) { s.peer = 4; }, "has a peer that is not in the group"},
      {2, [](Step& s) { s.peer = -1; }, "has a peer that is not in the group"},
      {2, [](Step& s) { s.peer = 2; }, "sends a message to its own rank"},
      {0, [](Step& s) { s.peer = 1; }, "has a peer but sends no message"},
      {0, [](Step& s) { s.src_area = Area::kScratch; }, "must have scratch on exactly one side"},
      {0, [](Step& s) { s.dst_area = Area::kInput; }, "must have scratch on exactly one side"},
      {0, [](Step& s) { s.src.count = 0; }, "must move exactly one chunk"},
      {0, [](Step& s) { s.src_area = static_cast<Area>(3); }, "names an area that does not exist"},
      {0, [](Step& s) { s.src.first = 1; }, "uses memory that this rank does not have"},
      {0, [](Step& s) { s.dst.first = 1; }, "uses memory that this rank does not have"},
      {0, [](Step& s) { s.src.first = ~0U; }, "uses memory that this rank does not have"},
      {1, [](Step& s) { s.dst_area = Area::kInput; }, "has chunks on the side that it does not use"},
      {1, [](Step& s) { s.src_area = Area::kInput; }, "has an area on the side that it does not use"},
      {2, [](Step& s) { s.dst = {}; }, "does not name the chunk that scratch holds"},
      {2, [](Step& s) { s.dst.first = 1; }, "does not name the chunk that scratch holds"},
      {2, [](Step& s) { s.src = {}; }, "names an empty place in memory"},
      {2, [](Step& s) { s.src_weight = 1; }, "has weights but does not reduce"},
      {1, [](Step& s) { s.src_weight = 0; }, "reduces without weights"},
      {1, [](Step& s) { s.src_weight = 4; }, "has weights beyond the number of ranks"},
  };
  for (const Case& c : cases) {
    std::vector<Plan> plans = build_all(*find_algorithm(Collective::kReduce, "binomial"), 4);
    c.edit(plans[2].steps[c.step]);
    const Status status = check(plans);
    EXPECT_EQ(status.rank(), 2) << c.what;
    EXPECT_EQ(status.message(),
              "step " + std::to_string(c.step) + " (" + to_string(plans[2].steps[c.step]) + ") " + c.what);
  }
}

TEST(Check, refuses_plans_that_mean_nothing) {
  const auto after_edit = [](void (*edit)(Plan&)) {
    std::vector<Plan> plans = build_all(*find_algorithm(Collective::kReduce, "binomial"), 4);
    edit(plans[2]);
    return check(plans).message();
  };
  EXPECT_EQ(after_edit([](Plan& p) { p.lanes = 0; }), "the plan has no lane");
  EXPECT_EQ(after_edit([](Plan& p) { p.shape.rank = 1; }), "the plan stands at the place of another rank");
  EXPECT_EQ(after_edit([](Plan& p) { p.shape.size = 5; }), "the plan is for another number of ranks");
  EXPECT_EQ(after_edit([](Plan& p) { p.chunks = 2; }), "the plan is for another call than rank 0's");
  EXPECT_EQ(after_edit([](Plan& p) { p.shape.root = 1; }), "the plan is for another call than rank 0's");
}

TEST(Check, refuses_runs_of_scratch_with_chunks_that_may_differ_in_size) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder builder("test", {Collective::kBroadcast, rank, 2}, 2, 2);
    const Place run{Area::kOutput, {0, 2}, {0, 2}};
    if (rank == 0) builder.send(1, run);
    if (rank == 1) builder.recv(0, {Area::kScratch, {0, 2}, {0, 2}});
    plans.push_back(builder.take());
  }
  EXPECT_FALSE(check(plans).is_ok());
}

TEST(Check, refuses_plans_of_different_calls) {
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  EXPECT_FALSE(check({}).is_ok());
  std::vector<Plan> plans = build_all(ring, 3, 0, 1);
  std::swap(plans[0], plans[1]);
  EXPECT_FALSE(check(plans).is_ok());
  plans = build_all(ring, 3, 0, 1);
  plans.pop_back();
  EXPECT_FALSE(check(plans).is_ok());
  plans = build_all(ring, 3, 0, 1);
  plans[1] = find_algorithm(Collective::kAllreduce, "recursive_doubling")->build(plans[1].shape);
  EXPECT_FALSE(check(plans).is_ok());
}

}  // namespace
}  // namespace pc
