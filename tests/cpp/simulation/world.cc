#include "simulation/world.h"

#include <algorithm>
#include <utility>

#include "simulation/simulated_rank.h"

namespace pc::simulation {
namespace {

constexpr milliseconds kMostUntilSettled{5000};  // after the last fault
constexpr milliseconds kAfterglow{500};          // time in which late messages must do no harm

const char* name_of(FrameType type) {
  switch (type) {
    case FrameType::kNotice: return "NOTICE";
    case FrameType::kDead: return "DEAD";
    case FrameType::kCancel: return "CANCEL";
    case FrameType::kPing: return "PING";
    case FrameType::kGoodbye: return "GOODBYE";
    default: return "?";
  }
}

}  // namespace

void Counts::add(const Counts& other) {
  messages += other.messages;
  failure_reports += other.failure_reports;
  mismatches += other.mismatches;
  found_by_asking += other.found_by_asking;
  timeouts += other.timeouts;
  exits_seen += other.exits_seen;
  surveys += other.surveys;
  deaths_reported += other.deaths_reported;
  exclusions += other.exclusions;
  places += other.places;
  unknown_groups += other.unknown_groups;
  forged += other.forged;
}

World::World(const Options& options)
    : dice(options.seed),
      scenario(make_scenario(dice)),
      options_(options),
      began_(events.now()),
      quiet_at_(events.now() + scenario.quiet),
      wires_(
          scenario.ranks, scenario.slowest, events, dice,
          [this](Rank from, Rank to, std::span<const std::byte> bytes) {
            // the rank may be stopped, which delays its delivery
            std::vector<std::byte> copy(bytes.begin(), bytes.end());
            at(to, Time(0), [this, from, to, copy = std::move(copy)] { rank(to).arrived(from, copy); });
          },
          [this](Rank from, Rank to, const std::string& cause) {
            at(to, Time(0), [this, from, to, cause] { rank(to).lost(from, cause); });
          }) {
  for (Rank number = 0; number < scenario.ranks; ++number)
    ranks_.push_back(std::make_unique<SimulatedRank>(*this, number));
}

World::~World() = default;

Outcome World::run() {
  if (options_.trace) outcome_.trace = describe(scenario);
  for (Rank number = 0; number < scenario.ranks; ++number)
    at(number, Time(0), [this, number] { rank(number).start(); });
  for (const Fault& fault : scenario.faults) happens_at(fault);
  for (int i = 0; i < 3; ++i) events.after(dice.within(milliseconds(500)), [this] { forge(); });
  events.after(scenario.quiet, [this] { watch(); });
  while (!ended_ && outcome_.failure.empty() && events.run_next()) {
  }
  outcome_.counts = counts;
  return std::move(outcome_);
}

void World::at(Rank number, Time delay, std::function<void()> what) {
  events.after(delay, [this, number, what = std::move(what)] { rank(number).run(what); });
}

void World::fail(const std::string& what) {
  log("FAILED: ", what);
  if (outcome_.failure.empty()) outcome_.failure = what;
}

void World::send(Rank from, Rank to, const ControlMessage& message) {
  ++counts.messages;
  log(from, " -> ", to, " ", name_of(message.type), message.asks ? " asks " : " ", message.call);
  const bool loses = options_.plant == Plant::kLostNotice && message.type == FrameType::kCancel;
  if (loses && from == static_cast<Rank>(options_.seed % static_cast<uint64_t>(scenario.ranks))) return;
  std::vector<std::byte> bytes;
  encode(message, bytes);
  wires_.send(from, to, bytes);
}

// ---- faults

void World::happens_at(const Fault& fault) {
  using What = Fault::What;
  switch (fault.what) {
    case What::kInterrupt: return at(fault.rank, fault.when, [this, fault] { rank(fault.rank).interrupt(); });
    case What::kStop:
      return at(fault.rank, fault.when, [this, fault] {
        log(fault.rank, " is stopped");
        rank(fault.rank).stop(fault.lasts);
      });
    case What::kDie: return events.after(fault.when, [this, fault] { die(fault.rank); });
    case What::kCut: return events.after(fault.when, [this, fault] { cut(fault.rank, fault.other); });
    case What::kOtherCall:
    case What::kOtherRoot:
    case What::kShortDeadline:
    case What::kExit: return;  // part of the rank's program
  }
}

void World::die(Rank number) {
  SimulatedRank& victim = rank(number);
  if (victim.gone) return;
  log(number, " dies");
  victim.dead = victim.was_hurt = true;
  for (Rank peer = 0; peer < scenario.ranks; ++peer) {
    if (peer == number) continue;
    std::optional<Time> notices = dice.within(milliseconds(50));
    if (peer != scenario.healthy && dice.chance(50)) notices = dice.within(milliseconds(2000));
    if (peer != scenario.healthy && dice.chance(30)) notices.reset();
    wires_.cut(number, peer, notices, "connection reset");
  }
}

void World::cut(Rank x, Rank y) {
  if (!rank(x).lives() || !rank(y).lives()) return;
  log("the connection between ", x, " and ", y, " ends");
  for (const auto& [from, to] : {std::pair(x, y), std::pair(y, x)}) {
    rank(from).was_cut = rank(from).was_hurt = true;
    wires_.cut(from, to, dice.within(milliseconds(dice.chance(50) ? 50 : 1000)), "connection timed out");
  }
}

void World::leave(Rank number) {
  log(number, " leaves");
  rank(number).send_goodbye();
  rank(number).gone = rank(number).was_hurt = true;
  for (Rank peer = 0; peer < scenario.ranks; ++peer) {
    if (peer != number) wires_.finish(number, peer);
  }
}

// Sends a message of another epoch: of an earlier world, or of a later one that we do not know yet.
void World::forge() {
  static constexpr FrameType kTypes[] = {FrameType::kCancel, FrameType::kDead, FrameType::kNotice,
                                         FrameType::kGoodbye};
  const Rank to = dice.below(scenario.ranks);
  const Rank from = (to + 1 + dice.below(scenario.ranks - 1)) % scenario.ranks;
  ControlMessage message;
  message.type = kTypes[dice.below(4)];
  message.epoch = options_.plant == Plant::kStaleEpoch ? kEpoch : dice.chance(80) ? kEpoch - 1 : kEpoch + 1;
  message.call = rank(to).running().value_or(CallId{kWorldGroup, 1 + dice.below(uint64_t{20})});
  message.report.state = CallReport::State::kRunning;
  message.report.digest = 0xf0f0;
  message.end = {Code::kTimeout, message.type == FrameType::kDead ? scenario.healthy : from, "forged"};
  if (rank(from).lives() && rank(to).lives()) {
    ++counts.forged;
    send(from, to, message);
  }
}

// ---- what must be reached in the end

void World::watch() {
  const std::string reason = unsettled();
  if (reason.empty()) return events.after(kAfterglow, [this] { ended_ = true; });
  if (events.now() >= quiet_at_ + kMostUntilSettled) return fail("not settled: " + reason);
  events.after(milliseconds(100), [this] { watch(); });
}

std::string World::unsettled() {
  for (const auto& one : ranks_) {
    if (!one->lives()) continue;
    if (std::string reason = one->unsettled(); !reason.empty()) return reason;
    for (Rank number = 0; number < scenario.ranks; ++number) {
      if ((rank(number).dead || rank(number).gone) && !one->knows_end_of(number))
        return "a rank does not know that rank " + std::to_string(number) + " is dead or gone";
    }
  }
  for (const auto& [group, all] : scenario.groups) {
    if (std::string reason = out_of_step(group, all); !reason.empty()) return reason;
  }
  return "";
}

// Returns an empty string if the group is out for all members, or if all members have completed one
// and the same call of it that was begun after the last fault.
std::string World::out_of_step(uint32_t group, const std::vector<Rank>& all) {
  const std::string name = "group " + std::to_string(group);
  const auto is_in = [&](Rank number) { return rank(number).lives() && !rank(number).is_out(group); };
  if (std::none_of(all.begin(), all.end(), is_in)) return "";
  if (!std::all_of(all.begin(), all.end(), is_in)) return name + " is out for some and not for others";
  for (const uint64_t sequence : rank(all.front()).good_barriers(group)) {
    const auto completed = [&](Rank number) { return rank(number).good_barriers(group).contains(sequence); };
    if (std::all_of(all.begin(), all.end(), completed)) return "";
  }
  return name + " has not come in step again";
}

Outcome run_world(const Options& options) { return World(options).run(); }

}  // namespace pc::simulation
