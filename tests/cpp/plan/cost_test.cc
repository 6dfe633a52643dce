#include "plan/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plan/builder.h"
#include "plan/draw.h"
#include "plan/worlds.h"

namespace pc {
namespace {

constexpr LinkModel kUnit{"test", 10, 1, 0.5, 0.25, ""};  // seconds, so that every sum is exact

Cost cost_of(Collective collective, const char* name, Rank size, uint64_t nbytes, uint32_t split = 1,
             const LinkModel& model = kUnit, uint64_t keep = BuiltPlans::kKeptNbytes) {
  BuiltPlans plans(*find_algorithm(collective, name), {collective, 0, size, 0, split}, keep);
  const Result<Cost> cost = predict(plans, nbytes, model);
  EXPECT_TRUE(cost.is_ok()) << cost.status().to_string();
  return cost.is_ok() ? cost.value() : Cost{};
}

TEST(Predict, a_message_takes_latency_two_overheads_and_its_bytes) {
  const Cost cost = cost_of(Collective::kBroadcast, "binomial", 2, 8);
  EXPECT_EQ(cost.seconds, 10 + 2 * 1 + 8 * 0.5);
  EXPECT_EQ(cost.messages, 1u);
  EXPECT_EQ(cost.rounds, 1u);
  EXPECT_EQ(cost.least_nbytes, 0u);
  EXPECT_EQ(cost.most_nbytes, 8u);
}

TEST(Predict, a_ring_takes_its_rounds_and_adds_in_half_of_them) {
  const Cost cost = cost_of(Collective::kAllreduce, "ring", 4, 64);
  EXPECT_EQ(cost.rounds, 6u);
  EXPECT_EQ(cost.seconds, 6 * (10 + 2 + 16 * 0.5) + 3 * 16 * 0.25);
  EXPECT_EQ(cost.steps, 48u);
  EXPECT_EQ(cost.most_nbytes, 6 * 16u);
}

TEST(Predict, messages_through_one_port_follow_each_other) {
  const Cost out = cost_of(Collective::kScatter, "linear", 4, 64);
  // three messages through the root's port, then the latency to the last rank
  EXPECT_EQ(out.seconds, 3 * (1 + 16 * 0.5) + 10 + 1);
  const Cost in = cost_of(Collective::kGather, "linear", 4, 64);
  EXPECT_EQ(in.seconds, 11 + 3 * (16 * 0.5 + 1));
}

TEST(Predict, rounds_are_those_of_the_catalog) {
  EXPECT_EQ(cost_of(Collective::kAllreduce, "recursive_doubling", 16, 64).rounds, 4u);
  // no rank takes part in all 6
  EXPECT_EQ(cost_of(Collective::kAllreduce, "recursive_doubling", 17, 64).rounds, 5u);
  EXPECT_EQ(cost_of(Collective::kBarrier, "dissemination", 9, 0).rounds, 4u);
  EXPECT_EQ(cost_of(Collective::kReduceScatter, "pairwise", 9, 90).rounds, 1u);
  EXPECT_EQ(cost_of(Collective::kAllgather, "ring", 9, 90).rounds, 8u);
}

TEST(Predict, large_arrays_are_for_rings_and_small_ones_for_doubling) {
  const LinkModel& model = *find_link_model("ethernet_10g");
  const auto seconds = [&](const char* name, uint64_t nbytes) {
    return cost_of(Collective::kAllreduce, name, 16, nbytes, 1, model).seconds;
  };
  EXPECT_LT(seconds("recursive_doubling", 64), seconds("ring", 64));
  EXPECT_LT(seconds("ring", 64 << 20), seconds("recursive_doubling", 64 << 20));
}

TEST(Predict, pieces_that_follow_each_other_are_faster_than_one) {
  EXPECT_LT(cost_of(Collective::kAllreduce, "double_binary_tree", 16, 1 << 20, 16).seconds,
            cost_of(Collective::kAllreduce, "double_binary_tree", 16, 1 << 20, 1).seconds);
}

TEST(Predict, does_not_depend_on_whether_the_plans_are_kept) {
  for (const char* name : {"ring", "recursive_doubling", "rabenseifner"}) {
    const Cost kept = cost_of(Collective::kAllreduce, name, 13, 1000);
    const Cost built_again = cost_of(Collective::kAllreduce, name, 13, 1000, 1, kUnit, 0);
    EXPECT_EQ(kept.seconds, built_again.seconds) << name;
    EXPECT_EQ(kept.steps, built_again.steps);
    EXPECT_EQ(kept.rounds, built_again.rounds);
    EXPECT_TRUE(kept.exact && built_again.exact);
  }
  const Cost lanes = cost_of(Collective::kAllreduce, "double_binary_tree", 13, 1000, 4, kUnit, 0);
  EXPECT_FALSE(lanes.exact);
  EXPECT_EQ(lanes.messages, cost_of(Collective::kAllreduce, "double_binary_tree", 13, 1000, 4).messages);
}

TEST(Predict, knows_its_links_by_name) {
  for (const LinkModel& model : link_models()) {
    EXPECT_EQ(find_link_model(model.name), &model);
    EXPECT_GT(model.latency_s, 0);
    EXPECT_GT(model.seconds_per_byte, 0);
  }
  EXPECT_EQ(find_link_model("pigeon"), nullptr);
}

TEST(Predict, refuses_plans_that_never_end) {
  std::vector<Plan> plans = build_all(*find_algorithm(Collective::kAllreduce, "ring"), 3);
  plans[1].steps.erase(plans[1].steps.begin());  // its first send
  GivenPlans given(plans);
  const Result<Cost> cost = predict(given, 0, kUnit);
  ASSERT_FALSE(cost.is_ok());
  EXPECT_NE(cost.status().to_string().find("gets other chunks than it names"), std::string::npos)
      << cost.status().to_string();
  plans = build_all(*find_algorithm(Collective::kAllreduce, "ring"), 3);
  plans[1].steps.pop_back();  // its last receive
  GivenPlans shorter(plans);
  EXPECT_NE(predict(shorter, 0, kUnit).status().to_string().find("is never received"), std::string::npos);
}

TEST(Draw, shows_a_ring_round_by_round) {
  BuiltPlans plans(*find_algorithm(Collective::kAllreduce, "ring"), {Collective::kAllreduce, 0, 3});
  EXPECT_EQ(draw(plans).value(), R"(round  rank 0      rank 1      rank 2
0      c0>1 +c2<2  c1>2 +c0<0  c2>0 +c1<1
1      c2>1 +c1<2  c0>2 +c2<0  c1>0 +c0<1
2      c1>1 c0<2   c2>2 c1<0   c0>0 c2<1
3      c0>1 c2<2   c1>2 c0<0   c2>0 c1<1
)");
  EXPECT_NE(draw(plans, 2).value().find("... and 2 rounds more\n"), std::string::npos);
}

TEST(Draw, shows_messages_without_data) {
  BuiltPlans plans(*find_algorithm(Collective::kBarrier, "dissemination"), {Collective::kBarrier, 0, 2});
  EXPECT_EQ(draw(plans).value(), "round  rank 0  rank 1\n0      >1 <1   >0 <0\n");
}

}  // namespace
}  // namespace pc
