// Is check() right? The judge is brute force: explore() runs every interleaving.
//   - what check() accepts must be right in every interleaving: it accepts no wrong plan;
//   - what it refuses for a deadlock or a wrong result must be wrong in at least one.
// A plan that is refused for a hazard may be harmless: two steps may race to write the same value.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>

#include "plan/analysis.h"
#include "plan/contracts.h"
#include "plan/explore.h"
#include "plan/mutants.h"
#include "plan/worlds.h"

namespace pc {
namespace {

// Returns true if a step reads the input where it may be the output.
bool distinguishes_in_place(std::span<const Plan> plans) {
  for (const Plan& plan : plans) {
    for (const Step& step : plan.steps) {
      const bool reads_input = !is_receive(step.kind) && step.src.count > 0 && step.src_area == Area::kInput;
      if (reads_input && has_input(plan.shape) && has_output(plan.shape)) return true;
    }
  }
  return false;
}

// Returns an empty string if the plans are right in every order, over every kind of transport, in
// place and not.
std::string explore_all(std::span<const Plan> plans, std::size_t* states, bool reduced = true) {
  for (const bool rendezvous : {false, true}) {
    for (const bool in_place : {true, false}) {
      if (!in_place && !distinguishes_in_place(plans)) continue;
      const Exploration result =
          explore(plans, {.rendezvous = rendezvous, .in_place = in_place, .reduced = reduced});
      *states += result.states;
      if (!result.bad.empty()) return result.bad;
    }
  }
  return "";
}

std::string reason_of(std::span<const Plan> plans) {  // the part of check() that refuses
  if (!check_structure(plans).is_ok()) return "structure";
  const Result<Schedule> schedule = make_schedule(plans);
  if (!schedule.is_ok()) {
    return schedule.status().message().find("(deadlock)") != std::string::npos ? "deadlock" : "matching";
  }
  if (!check_hazards(plans, HappensBefore(plans, schedule.value())).is_ok()) return "hazard";
  const Status status = check(plans);
  if (status.is_ok()) return "";
  return status.message().find("_weight") != std::string::npos ? "weights" : "result";
}

std::string describe(std::span<const Plan> plans, const std::string& what) {
  const Shape& shape = plans[0].shape;
  std::string text = std::to_string(shape.size) + " ranks, root " + std::to_string(shape.root) + ", split " +
                     std::to_string(shape.split) + ", " + what + "\n";
  for (const Plan& plan : plans) text += explain(plan);
  return text + check(plans).to_string();
}

// Compares check() with the judge, plan by plan, and counts the results.
class Trial {
 public:
  void judge(std::span<const Plan> plans, const std::string& field, const std::string& what) {
    ++made_[field];
    const std::string reason = reason_of(plans);
    if (reason.empty()) {
      ASSERT_EQ(explore_all(plans, &states_), "")
          << "check() accepts what is wrong: " << describe(plans, what);
      ++accepted_[field];
      return;
    }
    ++refused_[reason];
    if (reason == "structure" || reason == "matching") return;  // cannot be run
    if (!explore_all(plans, &states_).empty()) return;
    ++harmless_;
    ASSERT_EQ(reason, "hazard") << "check() refuses what is right: " << describe(plans, what);
  }

  void print(const std::string& name) const {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    int made = 0, proved = 0;
    std::string fields;
    for (const auto& [field, count] : made_) {
      const auto found = accepted_.find(field);
      const int accepted = found == accepted_.end() ? 0 : found->second;
      made += count;
      proved += accepted;
      if (accepted > 0)
        fields += " [" + field + " " + std::to_string(accepted) + " of " + std::to_string(count) + "]";
    }
    std::printf("%s: %d mutants. Refused:", name.c_str(), made);
    for (const auto& [reason, count] : refused_) std::printf(" %s %d", reason.c_str(), count);
    std::printf(" (hazards without a bad end: %d). Accepted, all proved right: %d%s. %zu states, %.2f s\n",
                harmless_, proved, fields.c_str(), states_, seconds.count());
  }

 private:
  std::map<std::string, int> made_, accepted_;  // by field
  std::map<std::string, int> refused_;          // by reason
  int harmless_ = 0;
  std::size_t states_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class Mutants : public testing::TestWithParam<Family> {};
class SmallWorlds : public Mutants {};
class MediumWorlds : public Mutants {};

TEST_P(Mutants, that_check_accepts_are_right_in_every_interleaving_and_others_are_not) {
  Trial trial;
  for (const std::vector<Plan>& world : GetParam().worlds) {
    for_each_mutant(world,
                    [&](std::span<const Plan> plans, const std::string& field, const std::string& what) {
                      if (!HasFatalFailure()) trial.judge(plans, field, what);
                    });
  }
  trial.print(GetParam().name);
}

TEST_P(SmallWorlds, have_mutants_of_mutants_that_are_judged_like_mutants) {  // two errors at once
  Trial trial;
  for (const std::vector<Plan>& world : GetParam().worlds) {
    for_each_mutant(world, [&](std::span<const Plan> once, const std::string& field,
                               const std::string& first) {
      if (!check_structure(once).is_ok()) return;  // a second error rarely repairs that
      for_each_mutant({once.begin(), once.end()}, [&](std::span<const Plan> twice, const std::string& other,
                                                      const std::string& second) {
        if (!HasFatalFailure())
          trial.judge(twice, std::min(field, other) + "+" + std::max(field, other), first + ", " + second);
      });
    });
  }
  trial.print(GetParam().name + ", two at once");
}

TEST_P(Mutants, have_originals_that_are_right_in_every_interleaving) {
  std::size_t states = 0;
  for (const std::vector<Plan>& world : GetParam().worlds) {
    EXPECT_TRUE(check(world).is_ok()) << describe(world, "unchanged");
    EXPECT_EQ(explore_all(world, &states), "") << describe(world, "unchanged");
  }
}

// The judge's reduction is checked as well: without it, the judgement on every mutant that can be
// run is the same.
TEST_P(MediumWorlds, have_mutants_that_are_judged_the_same_with_and_without_reduction) {
  std::size_t reduced_states = 0, all_states = 0;
  int compared = 0;
  for (const std::vector<Plan>& world : GetParam().worlds) {
    for_each_mutant(world, [&](std::span<const Plan> plans, const std::string&, const std::string& what) {
      const std::string reason = reason_of(plans);
      if (reason == "structure" || reason == "matching") return;
      const bool reduced = explore_all(plans, &reduced_states).empty();
      ASSERT_EQ(reduced, explore_all(plans, &all_states, false).empty()) << describe(plans, what);
      ++compared;
    });
  }
  std::printf("%s: %d mutants, %zu states with and %zu without reduction\n", GetParam().name.c_str(),
              compared, reduced_states, all_states);
}

// Returns every family's worlds that have at most this number of steps, over all ranks.
std::vector<Family> families(std::size_t most_steps) {
  std::vector<Family> result;
  for (const std::vector<Family>& source : {catalogued(4, 3), uncatalogued()}) {
    for (const Family& family : source) {
      Family kept{family.name, {}};
      for (const std::vector<Plan>& world : family.worlds) {
        std::size_t steps = 0;
        for (const Plan& plan : world) steps += plan.steps.size();
        if (steps <= most_steps) kept.worlds.push_back(world);
      }
      if (!kept.worlds.empty()) result.push_back(std::move(kept));
    }
  }
  return result;
}
constexpr auto kNameOfFamily = [](const auto& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Plans, Mutants, testing::ValuesIn(families(1000)), kNameOfFamily);
INSTANTIATE_TEST_SUITE_P(Plans, SmallWorlds, testing::ValuesIn(families(8)), kNameOfFamily);
INSTANTIATE_TEST_SUITE_P(Plans, MediumWorlds, testing::ValuesIn(families(16)), kNameOfFamily);

}  // namespace
}  // namespace pc
