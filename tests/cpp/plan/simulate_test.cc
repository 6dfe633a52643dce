#include "plan/simulate.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "plan/analysis.h"
#include "plan/builder.h"
#include "plan/mutants.h"
#include "plan/worlds.h"

namespace pc {
namespace {

class Simulated : public testing::TestWithParam<Algorithm> {};

TEST_P(Simulated, every_algorithm_gives_the_right_result) {
  const Algorithm& algorithm = GetParam();
  std::size_t worlds = 0;
  for (const Rank size : {1, 2, 3, 4, 5, 8, 13, 16, 64}) {
    for (const uint32_t split : {1U, 3U}) {
      for (const Rank root : {0, size / 2}) {
        if (algorithm.pipelines == Pipelines::kNot && split > 1) continue;
        const Shape shape{algorithm.collective, 0, size, root, split};
        if (!algorithm.supports(shape)) continue;
        for (const uint64_t keep : {BuiltPlans::kKeptNbytes, uint64_t{0}}) {
          BuiltPlans plans(algorithm, shape, keep);
          const Result<Cost> cost = simulate(plans, 1 << 20, link_models()[0]);
          ASSERT_TRUE(cost.is_ok()) << "size " << size << " split " << split << cost.status().to_string();
          ++worlds;
        }
      }
    }
  }
  EXPECT_GE(worlds, 10u);
}

TEST_P(Simulated, one_pass_accepts_every_algorithm_that_it_can_follow) {
  const Algorithm& algorithm = GetParam();
  if (synchronizes(algorithm.collective)) {
    BuiltPlans plans(algorithm, {algorithm.collective, 0, 4});
    EXPECT_EQ(check_one_pass(plans).code(), Code::kUnsupported);
    return;
  }
  for (const Rank size : {1, 2, 3, 4, 8, 13, 64}) {
    if (!algorithm.supports({algorithm.collective, 0, size})) continue;
    BuiltPlans plans(algorithm, {algorithm.collective, 0, size}, 0);
    const Status status = check_one_pass(plans);
    EXPECT_TRUE(status.is_ok()) << "size " << size << ": " << status.to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Simulated, testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& test) { return title_of(test.param); });

std::vector<Plan> edited(const char* name, Rank size, void (*edit)(std::vector<Plan>&)) {
  std::vector<Plan> plans = build_all(*find_algorithm(Collective::kAllreduce, name), size);
  edit(plans);
  return plans;
}
std::string report(const std::vector<Plan>& plans) {
  GivenPlans given(plans);
  const Result<Cost> cost = simulate(given, 64, link_models()[0]);
  return cost.is_ok() ? "right" : cost.status().to_string();
}

TEST(Simulate, sees_a_sum_that_is_not_the_sum) {
  EXPECT_EQ(
      report(edited("ring", 3,
                    [](std::vector<Plan>& plans) {
                      for (Plan& plan : plans) plan.steps.resize(4);  // no rank forwards sums
                    })),
      "ring allreduce of 3 ranks on rank 0: the plan ends with a wrong chunk 0: it holds 1 contributions "
      "instead of 3");
}

TEST(Simulate, sees_a_contribution_that_is_taken_for_another) {
  std::vector<Plan> plans;  // rank 0 sends chunk 1 instead of chunk 0 through scratch: every count is right
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder plan("test", {Collective::kBroadcast, rank, 2}, 2, 1);
    if (rank == 0) {
      plan.copy(output(1), scratch(0, 1));
      plan.send(1, scratch(0, 0));
      plan.send(1, output(1));
    } else {
      plan.recv(0, output(0));
      plan.recv(0, output(1));
    }
    plans.push_back(plan.take());
  }
  EXPECT_EQ(
      report(plans),
      "test broadcast of 2 ranks on rank 1: the plan ends with a wrong chunk 0: it holds 1 contributions "
      "instead of 1, but not the right ones");
}

TEST(Simulate, sees_a_weight_that_is_not_true) {
  EXPECT_EQ(report(edited("ring", 3, [](std::vector<Plan>& plans) { plans[1].steps[3].src_weight = 1; })),
            "ring allreduce of 3 ranks on rank 1: step 3 (recv_reduce chunk 2 <- rank 0) says src_weight 1, "
            "but its operand holds 2 contributions");
}

TEST(Simulate, finds_plans_that_never_end) {
  EXPECT_NE(report(edited("recursive_doubling", 2,
                          [](std::vector<Plan>& plans) {
                            for (Plan& plan : plans) std::swap(plan.steps[0], plan.steps[1]);
                            for (Plan& plan : plans) plan.steps[2].after = 0;
                          }))
                .find("never ends: what it waits for does not come"),
            std::string::npos);
}

TEST(Simulate, refuses_plans_that_touch_what_is_not_there) {
  EXPECT_NE(report(edited("ring", 3, [](std::vector<Plan>& plans) { plans[1].steps[1].dst.first = 9; }))
                .find("uses memory that this rank does not have"),
            std::string::npos);
}

TEST(Simulate, refuses_worlds_with_more_data_than_fits) {
  BuiltPlans plans(*find_algorithm(Collective::kAllreduce, "ring"), {Collective::kAllreduce, 0, 30000}, 0);
  const Status status = simulate(plans, 64, link_models()[0]).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("take fewer ranks"), std::string::npos);
}

TEST(CheckOnePass, asks_for_a_reason_before_a_sent_chunk_is_written) {
  const std::vector<Plan> plans = edited("recursive_doubling", 4, [](std::vector<Plan>& all) {
    for (Plan& plan : all) plan.steps[2].after = 0;
  });
  GivenPlans given(plans);
  EXPECT_EQ(
      check_one_pass(given).to_string(),
      "recursive_doubling allreduce of 4 ranks on rank 0: step 2 (reduce chunk 0 from scratch 0) may touch "
      "memory that step 0 (send chunk 0 -> rank 1) still uses: nothing in this rank's plan orders them");
}

TEST(Simulate, holds_a_send_for_complete_only_when_it_is_received) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder plan("test", {Collective::kAllreduce, rank, 2}, 1);
    const uint32_t sent = plan.send(1 - rank, output(0));
    plan.after(sent).recv_reduce(1 - rank, output(0), {.dst = 1, .src = 1});
    plans.push_back(plan.take());
  }
  EXPECT_NE(report(plans).find("never ends"), std::string::npos) << report(plans);
}

// Sums of three ranks on rank 1, while rank 0 also sends chunk 0 to rank 2, which does not use it:
// no step shows when it has been read. The test writes rank 0's own part.
std::vector<Plan> with_an_idle_send(uint32_t chunks, void (*rank_0)(PlanBuilder&)) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {
    PlanBuilder plan("test", {Collective::kAllreduce, rank, 3}, chunks, 2);
    if (rank == 0) {
      rank_0(plan);
    } else if (rank == 1) {
      for (uint32_t c = 0; c < chunks; ++c) {
        plan.recv_reduce(0, output(c), {.dst = 1, .src = 1});
        plan.recv_reduce(2, output(c), {.dst = 2, .src = 1});
      }
      for (const Rank to : {0, 2}) {
        for (uint32_t c = 0; c < chunks; ++c) plan.send(to, output(c));
      }
    } else {
      plan.lane(1).recv(0, scratch(0, 0));
      plan.lane(0);
      for (uint32_t c = 0; c < chunks; ++c) plan.send(1, output(c));
      for (uint32_t c = 0; c < chunks; ++c) plan.recv(1, output(c));
    }
    plans.push_back(plan.take());
  }
  return plans;
}
std::string one_pass(const std::vector<Plan>& plans) {
  GivenPlans given(plans);
  return check_one_pass(given).to_string();
}

TEST(CheckOnePass, does_not_take_the_sums_return_for_a_proof_of_two_sends) {
  const std::vector<Plan> plans = with_an_idle_send(1, [](PlanBuilder& plan) {
    const uint32_t sent = plan.send(1, output(0));
    plan.lane(1).send(2, output(0));
    plan.lane(0).after(sent).recv(1, output(0));
  });
  EXPECT_EQ(report(plans), "right");
  EXPECT_FALSE(check(plans).is_ok());
  EXPECT_NE(one_pass(plans).find("step 1 (send chunk 0 -> rank 2) still uses"), std::string::npos)
      << one_pass(plans);
}

TEST(CheckOnePass, does_not_take_the_sums_return_for_a_proof_where_a_copy_was_sent) {
  const std::vector<Plan> plans = with_an_idle_send(2, [](PlanBuilder& plan) {
    plan.lane(1).send(2, output(0));
    plan.lane(0).copy(output(0), scratch(1, 0));
    plan.send(1, scratch(1, 0));
    const uint32_t sent = plan.send(1, output(1));
    plan.recv(1, output(0));
    plan.after(sent).recv(1, output(1));
  });
  EXPECT_EQ(report(plans), "right");
  EXPECT_FALSE(check(plans).is_ok());
  EXPECT_NE(one_pass(plans).find("step 0 (send chunk 0 -> rank 2) still uses"), std::string::npos)
      << one_pass(plans);
}

TEST(CheckOnePass, takes_nothing_less_than_the_whole_sum_for_its_return) {
  // rank 0 first receives rank 1's contribution, which does not show that rank 0's send has
  // completed
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder plan("test", {Collective::kAllreduce, rank, 2}, 1);
    const uint32_t sent = plan.send(1 - rank, output(0));
    if (rank == 0) {
      plan.recv(1, output(0));
      plan.recv(1, output(0));
    } else {
      plan.after(sent).recv_reduce(0, output(0), {.dst = 1, .src = 1});
      plan.send(0, output(0));
    }
    plans.push_back(plan.take());
  }
  EXPECT_EQ(report(plans), "right");
  EXPECT_FALSE(check(plans).is_ok());
  EXPECT_NE(one_pass(plans).find("a plain receive gets less than the whole sum"), std::string::npos)
      << one_pass(plans);
}

// The judge is check(), which mutants_test.cc compares with every interleaving.
class OnePass : public testing::TestWithParam<Family> {};

TEST_P(OnePass, accepts_no_mutant_that_check_refuses_and_a_simulation_sees_every_wrong_result) {
  int made = 0, right = 0, accepted = 0;
  for (const std::vector<Plan>& world : GetParam().worlds) {
    for_each_mutant(world, [&](std::span<const Plan> mutant, const std::string&, const std::string& what) {
      if (!check_structure(mutant).is_ok()) return;
      ++made;
      const Status full = check(mutant);
      GivenPlans plans(mutant);
      const Status one_pass = check_one_pass(plans);
      right += full.is_ok() ? 1 : 0;
      accepted += one_pass.is_ok() ? 1 : 0;
      if (one_pass.is_ok()) {
        ASSERT_TRUE(full.is_ok()) << what << ": " << full.to_string();
      }
      const bool simulates = simulate(plans, 64, link_models()[0]).is_ok();
      const Result<Schedule> schedule = make_schedule(mutant);
      if (!schedule.is_ok()) {
        ASSERT_FALSE(simulates) << what;
      } else if (check_hazards(mutant, HappensBefore(mutant, schedule.value())).is_ok() &&
                 !synchronizes(mutant[0].shape.collective)) {
        ASSERT_EQ(simulates, full.is_ok()) << what << ": " << full.to_string();
      }
    });
  }
  std::printf("%s: %d mutants, %d right, %d accepted in one pass\n", GetParam().name.c_str(), made, right,
              accepted);
}

std::string family_name(const testing::TestParamInfo<Family>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Catalogued, OnePass, testing::ValuesIn(catalogued(4, 2)), family_name);
INSTANTIATE_TEST_SUITE_P(Uncatalogued, OnePass, testing::ValuesIn(uncatalogued()), family_name);

}  // namespace
}  // namespace pc
