#include <gtest/gtest.h>

#include "simulation/world.h"

namespace pc::simulation {
namespace {

// Returns the seed of the first world that fails, or 0 if none does.
uint64_t first_failure(uint64_t seeds, Plant plant, Counts& counts) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcome outcome = run_world({.seed = seed, .plant = plant});
    counts.add(outcome.counts);
    if (!outcome.failure.empty()) return seed;
  }
  return 0;
}

TEST(ControlSimulation, EverySeedEndsWell) {
  Counts counts;
  const uint64_t seed = first_failure(300, Plant::kNone, counts);
  EXPECT_EQ(seed, 0u) << run_world({.seed = seed}).failure << "\ncontrol_sim --trace --seed " << seed;
  EXPECT_GT(counts.mismatches, 0u);
  EXPECT_GT(counts.timeouts, 0u);
  EXPECT_GT(counts.exits_seen, 0u);
  EXPECT_GT(counts.found_by_asking, 0u);
  EXPECT_GT(counts.surveys, 0u);
  EXPECT_GT(counts.places, 0u);
  EXPECT_GT(counts.deaths_reported, 0u);
  EXPECT_GT(counts.exclusions, 0u);
  EXPECT_GT(counts.unknown_groups, 0u);
  EXPECT_GT(counts.forged, 0u);
}

TEST(ControlSimulation, PlantedMistakesAreFoundAndFoundAgain) {
  for (const Plant plant : {Plant::kLostNotice, Plant::kStaleEpoch}) {
    Counts counts;
    const uint64_t seed = first_failure(300, plant, counts);
    ASSERT_NE(seed, 0u) << "plant " << static_cast<int>(plant);
    const Outcome again = run_world({.seed = seed, .plant = plant, .trace = true});
    EXPECT_NE(again.trace.find("FAILED: " + again.failure), std::string::npos);
    EXPECT_EQ(run_world({.seed = seed}).failure, "") << "without the mistake the same world is well";
  }
}

TEST(ControlSimulation, TheSameSeedIsTheSameWorld) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome one = run_world({.seed = seed, .trace = true});
    const Outcome other = run_world({.seed = seed, .trace = true});
    EXPECT_GT(one.trace.size(), 100u);
    EXPECT_EQ(one.trace, other.trace);
  }
}

}  // namespace
}  // namespace pc::simulation
