// control_sim: whole worlds of control planes, each from one seed. See world.h.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "simulation/world.h"

namespace {

using namespace pc::simulation;

constexpr const char* kUsage =
    "usage: control_sim [--seeds N] [--first S] [--seed S] [--trace] [--plant lost-notice|stale-epoch]\n";

struct Arguments {
  uint64_t first = 1, seeds = 1000;
  std::string plant;  // in the form in which the command line must repeat it
  Options options;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--trace") {
      a.options.trace = true;
      continue;
    }
    if (++i == argc) return std::nullopt;
    const std::string_view value = argv[i];
    const uint64_t number = std::strtoull(argv[i], nullptr, 10);
    if (name == "--seeds") {
      a.seeds = number;
    } else if (name == "--first") {
      a.first = number;
    } else if (name == "--seed") {
      a.first = number;
      a.seeds = 1;
    } else if (name == "--plant" && (value == "lost-notice" || value == "stale-epoch")) {
      a.options.plant = value == "lost-notice" ? Plant::kLostNotice : Plant::kStaleEpoch;
      a.plant = " --plant " + std::string(value);
    } else {
      return std::nullopt;
    }
  }
  return a;
}

void print(const Counts& c, uint64_t seeds) {
  const auto line = [](const char* what, uint64_t count) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what);
  };
  line("worlds, all well", seeds);
  line("messages", c.messages);
  line("failure reports", c.failure_reports);
  line("  of them mismatches", c.mismatches);
  line("  of them timeouts", c.timeouts);
  line("  of them departures", c.exits_seen);
  line("causes found by asking", c.found_by_asking);
  line("surveys answered", c.surveys);
  line("places found later", c.places);
  line("members without the group", c.unknown_groups);
  line("deaths learned from others", c.deaths_reported);
  line("exclusions", c.exclusions);
  line("forged messages", c.forged);
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<Arguments> arguments = parse(argc, argv);
  if (!arguments.has_value()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  Counts counts;
  for (uint64_t i = 0; i < arguments->seeds; ++i) {
    Options options = arguments->options;
    options.seed = arguments->first + i;
    const Outcome outcome = run_world(options);
    std::fputs(outcome.trace.c_str(), stdout);
    if (!outcome.failure.empty()) {
      std::printf("%s\ncontrol_sim --seed %llu%s\n", outcome.failure.c_str(),
                  static_cast<unsigned long long>(options.seed), arguments->plant.c_str());
      return 1;
    }
    counts.add(outcome.counts);
  }
  print(counts, arguments->seeds);
  return 0;
}
