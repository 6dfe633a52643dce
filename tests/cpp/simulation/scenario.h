// The content of one seed: ranks, hosts, groups, the program that all ranks run, and the faults.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "simulation/events.h"

namespace pc::simulation {

inline constexpr uint32_t kWorldGroup = 0, kSubGroup = 1;

enum class Kind : uint8_t {
  kAll,      // like allreduce: every rank needs all others, around a ring
  kRooted,   // like broadcast: the root completes alone, the other ranks need the root
  kBarrier,  // every rank receives from all ranks
};
struct Step {
  uint32_t group = kWorldGroup;
  Kind kind = Kind::kAll;
  Rank root = 0;  // its rank in the world
  Time think;     // the longest pause before the step
};

struct Fault {
  enum class What : uint8_t {
    kOtherCall,      // `rank` makes another call in `step` than the other ranks
    kOtherRoot,      // `rank` acts as the root in `step`
    kShortDeadline,  // `rank` has a short deadline in `step`
    kInterrupt,      // Ctrl-C at `rank`
    kStop,           // `rank` does nothing for `lasts`
    kDie,
    kCut,   // the connection between `rank` and `other` ends
    kExit,  // `rank` calls shutdown() instead of `step`
  };
  What what;
  Rank rank = 0, other = 0;
  std::size_t step = 0;
  Time when{}, lasts{};
};

struct Scenario {
  Rank ranks = 2;
  std::vector<int> host;  // by rank; ranks of different hosts exchange heartbeats
  std::map<uint32_t, std::vector<Rank>> groups;
  std::size_t sub_known_from = 0;  // the step before which ranks create their second group
  std::vector<Step> steps;
  std::vector<Fault> faults;
  Rank healthy = 0;              // never dies, exits or loses a connection: its knowledge spreads
  Time quiet{};                  // no fault begins after this time
  Time slowest{};                // the longest delay of a message
  int detects_percent = 50;      // how often a data plane detects a foreign call itself
  bool waits_for_report = true;  // before a program continues after an error
  bool is_remote(Rank x, Rank y) const {
    return host[static_cast<std::size_t>(x)] != host[static_cast<std::size_t>(y)];
  }
  bool has(Fault::What what, Rank rank, std::size_t step) const;
};

Scenario make_scenario(Dice& dice);
std::string describe(const Scenario& scenario);

}  // namespace pc::simulation
