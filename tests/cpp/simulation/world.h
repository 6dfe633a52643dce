// A whole world of control planes from one seed: runs it, checks invariants, and waits for the
// required end state.
#pragma once

#include <iomanip>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "simulation/call_book.h"
#include "simulation/events.h"
#include "simulation/scenario.h"
#include "simulation/wires.h"
#include "wire/control_plane.h"

namespace pc::simulation {

inline constexpr uint32_t kEpoch = 3;

// Deliberate errors in the simulator, not in the product. A sweep must find them to be trusted.
enum class Plant : uint8_t { kNone, kLostNotice, kStaleEpoch };

struct Options {
  uint64_t seed = 1;
  Plant plant = Plant::kNone;
  bool trace = false;
};
// Numbers of events, so that a sweep can show that it covered what it claims to check.
struct Counts {
  uint64_t messages = 0, failure_reports = 0, mismatches = 0, found_by_asking = 0, timeouts = 0,
           exits_seen = 0, surveys = 0, deaths_reported = 0, exclusions = 0, places = 0, unknown_groups = 0,
           forged = 0;
  void add(const Counts& other);
};
struct Outcome {
  std::string failure;  // empty if there is none
  std::string trace;
  Counts counts;
};
Outcome run_world(const Options& options);

inline std::ostream& operator<<(std::ostream& out, const CallId& call) {
  return out << call.group << '#' << call.sequence;
}

class SimulatedRank;

class World {
 public:
  explicit World(const Options& options);
  ~World();
  Outcome run();

  // Runs `what` at `rank` after `delay`; later if the rank is stopped then, never if it is dead or
  // gone.
  void at(Rank rank, Time delay, std::function<void()> what);
  void send(Rank from, Rank to, const ControlMessage& message);
  void fail(const std::string& what);
  template <class... Parts>
  void log(const Parts&... parts) {
    if (!options_.trace) return;
    std::ostringstream line;
    line << std::fixed << std::setprecision(3) << since_start_ms() << " ms  ";
    (line << ... << parts);
    outcome_.trace += line.str() + "\n";
  }
  SimulatedRank& rank(Rank number) { return *ranks_[static_cast<std::size_t>(number)]; }
  bool is_quiet() const { return events.now() >= quiet_at_; }
  TimePoint quiet_at() const { return quiet_at_; }
  void leave(Rank rank);  // orderly, after its goodbye

  Dice dice;
  Events events;
  const Scenario scenario;
  CallBook book;
  Counts counts;

 private:
  double since_start_ms() const {
    return std::chrono::duration<double, std::milli>(events.now() - began_).count();
  }
  void happens_at(const Fault& fault);
  void die(Rank rank);
  void cut(Rank x, Rank y);
  void forge();
  void watch();
  std::string unsettled();  // returns the first unmet condition; empty if all are met
  std::string out_of_step(uint32_t group, const std::vector<Rank>& all);

  const Options options_;
  const TimePoint began_;
  const TimePoint quiet_at_;
  Wires wires_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  bool ended_ = false;
  Outcome outcome_;
};

}  // namespace pc::simulation
