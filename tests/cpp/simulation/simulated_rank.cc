#include "simulation/simulated_rank.h"

#include <algorithm>
#include <utility>

namespace pc::simulation {
namespace {

constexpr uint64_t kShutdownDigest = 0x5d;

std::vector<bool> remote_from(Rank me, const Scenario& scenario) {
  std::vector<bool> remote;
  for (Rank rank = 0; rank < scenario.ranks; ++rank) remote.push_back(scenario.is_remote(me, rank));
  return remote;
}

// After the program's steps: one barrier of each group, round-robin and without end.
Step step_of(const Scenario& scenario, std::size_t i) {
  if (i < scenario.steps.size()) return scenario.steps[i];
  const uint32_t group = static_cast<uint32_t>((i - scenario.steps.size()) % scenario.groups.size());
  return {group, Kind::kBarrier, scenario.groups.at(group).front(), milliseconds(30)};
}

}  // namespace

SimulatedRank::SimulatedRank(World& world, Rank me)
    : world_(world),
      me_(me),
      plane_(me, remote_from(me, world.scenario), kEpoch, *this) {}

// ---- events

void SimulatedRank::run(const std::function<void()>& what) {
  if (dead || gone) return;
  if (stopped_) return backlog_.push_back(what);
  what();
  after_plane();
}

void SimulatedRank::after_plane() {
  const std::optional<TimePoint> next = plane_.next_tick();
  if (!next.has_value() || (tick_planned_.has_value() && *tick_planned_ <= *next)) return;
  tick_planned_ = next;
  const Time delay = std::max(Time(0), std::chrono::ceil<Time>(*next - world_.events.now()));
  world_.at(me_, delay + world_.dice.within(milliseconds(2)), [this, when = *next] {
    if (tick_planned_ == when) tick_planned_.reset();
    plane_.tick(world_.events.now());
  });
}

void SimulatedRank::arrived(Rank from, std::span<const std::byte> bytes) {
  ControlReader& reader = readers_[from];
  if (const Status status = reader.feed(bytes); !status.is_ok()) world_.fail(status.to_string());
  while (const std::optional<ControlMessage> message = reader.next())
    plane_.received(from, *message, world_.events.now());
}

void SimulatedRank::lost(Rank peer, const std::string& cause) {
  plane_.lost(peer, cause, world_.events.now());
}

void SimulatedRank::interrupt() {
  if (running_.has_value()) give_up(*running_, Code::kInterrupted, me_, "Ctrl-C");
}

void SimulatedRank::stop(Time lasts) {
  if (stopped_) return;
  stopped_ = was_hurt = true;
  world_.events.after(lasts, [this] {
    stopped_ = false;
    world_.log(me_, " goes on after a stop");
    for (const auto& what : std::exchange(backlog_, {})) run(what);
  });
}

// ---- the program

void SimulatedRank::next_step() {
  if (!lives()) return;
  const Scenario& scenario = world_.scenario;
  const std::size_t end = std::max(step_, scenario.steps.size()) + scenario.groups.size();
  for (; step_ < end; ++step_) {
    const Step step = step_of(scenario, step_);
    const std::vector<Rank>& all = scenario.groups.at(step.group);
    if (is_out(step.group) || std::find(all.begin(), all.end(), me_) == all.end()) continue;
    const Time most = world_.is_quiet() ? Time(milliseconds(30)) : step.think;
    return world_.at(me_, world_.dice.within(most), [this, i = step_++] { begin(i); });
  }
}

void SimulatedRank::begin(std::size_t i) {
  const Scenario& scenario = world_.scenario;
  const Step step = step_of(scenario, i);
  if (is_out(step.group)) return next_step();
  if (i >= scenario.sub_known_from) known_groups_.insert(kSubGroup);
  const auto goes_wrong = [&](Fault::What what) { return !world_.is_quiet() && scenario.has(what, me_, i); };
  if (goes_wrong(Fault::What::kExit)) return leave();
  const CallId call{step.group, ++sequence_[step.group]};
  Entry& entry = mine(call);
  entry = {State::kRunning, 0, step.kind, step.root, world_.events.now()};
  if (goes_wrong(Fault::What::kOtherRoot)) entry.root = me_;
  entry.digest = 0x1000 + 0x100 * static_cast<uint64_t>(step.kind) + static_cast<uint64_t>(entry.root);
  if (goes_wrong(Fault::What::kOtherCall)) entry.digest += 0x10000;
  world_.log(me_, " makes call ", call, " with digest ", entry.digest);
  if (ended_early_.contains(call)) {
    entry.state = State::kGivenUp;
    return go_on_after(call);
  }
  wait(call);
  for (const Fault& fault : scenario.faults) {
    if (fault.what != Fault::What::kShortDeadline || fault.rank != me_ || fault.step != i) continue;
    if (world_.is_quiet()) continue;
    world_.at(me_, fault.lasts, [this, call] { give_up(call, Code::kTimeout, me_, "timed out"); });
  }
}

void SimulatedRank::leave() {
  leaving_ = true;
  if (is_out(kWorldGroup)) return world_.leave(me_);
  const CallId call{kWorldGroup, ++sequence_[kWorldGroup]};
  mine(call) = {State::kLeaving, kShutdownDigest, Kind::kBarrier, 0, world_.events.now()};
  world_.log(me_, " is in shutdown() instead of ", call);
  if (ended_early_.contains(call)) return go_on_after(call);
  wait(call);
  world_.at(me_, milliseconds(300),
            [this, call] { give_up(call, Code::kTimeout, me_, "no other rank leaves"); });
}

void SimulatedRank::wait(const CallId& call) {
  running_ = call;
  made(call);
  world_.at(me_, milliseconds(100) + world_.dice.within(milliseconds(20)), [this, call] { probe(call); });
  const Time wait_limit = milliseconds(world_.dice.chance(5) ? 50 : 1000);
  world_.at(me_, wait_limit, [this, call] {
    if (running_ != call) return;
    surveys_.insert(call);
    plane_.survey(call, world_.events.now());
    if (world_.dice.chance(30)) ask_what_it_does(call.group);
  });
}

void SimulatedRank::ask_what_it_does(uint32_t group) {
  const std::span<const Rank> all = members(group);
  const Rank peer = all[world_.dice.below(all.size())];
  const CallId doing = CallId::position_query(group, me_, peer);
  if (peer == me_ || !surveys_.insert(doing).second) return;
  plane_.survey(doing, world_.events.now());
}

void SimulatedRank::probe(const CallId& call) {
  if (running_ != call) return;
  plane_.stalled(call, waits_for(call), world_.events.now());
  world_.at(me_, milliseconds(250), [this, call] { probe(call); });
}

void SimulatedRank::give_up(const CallId& call, Code code, Rank by, const std::string& text) {
  if (running_ != call) return;
  const CallEnd why{code, by, text};
  world_.log(me_, " gives up ", call, ": ", text);
  world_.book[call].ends.push_back(why);
  if (!leaving_) mine(call).state = State::kGivenUp;
  check_failure(call, why);
  ended_[call] = world_.events.now();
  surveys_.erase(call);
  plane_.gave_up(call, why, world_.events.now());
  go_on_after(call);
}

// May be called from inside the plane.
void SimulatedRank::go_on_after(const CallId& call) {
  running_.reset();
  if (world_.scenario.waits_for_report && ended_.contains(call)) {
    awaited_report_ = call;
    return;
  }
  world_.at(me_, Time(0), [this] { leaving_ ? world_.leave(me_) : next_step(); });
}

void SimulatedRank::send_goodbye() { plane_.send_goodbye(world_.events.now()); }

// The running call of a group that lost a member ends immediately, and so does every later call.
void SimulatedRank::out_of(uint32_t group) {
  out_.insert(group);
  if (!running_.has_value() || running_->group != group) return;
  if (!leaving_) mine(*running_).state = State::kGivenUp;
  go_on_after(*running_);
}

// ---- ControlHost

std::span<const Rank> SimulatedRank::members(uint32_t group) {
  const auto found = world_.scenario.groups.find(group);
  if (found == world_.scenario.groups.end() || !known_groups_.contains(group)) return {};
  const bool is_member = std::find(found->second.begin(), found->second.end(), me_) != found->second.end();
  return is_member ? std::span<const Rank>(found->second) : std::span<const Rank>();
}

CallReport SimulatedRank::report(const CallId& call, bool find_where) {
  CallReport report;
  const Entry entry = call.is_call() ? mine(call) : Entry{};
  report.state = entry.state;
  report.digest = entry.digest;
  report.site = site_of(me_);
  report.call = std::string(world_.dice.below(std::size_t{300}), 'c');
  if (entry.state != State::kNotMade) return report;
  const auto [place, is_first_request] =
      find_where ? places_.try_emplace(call) : std::pair(places_.find(call), false);
  if (place == places_.end()) return report;
  report.where = place->second;
  report.where_follows = report.where.empty();
  if (is_first_request && world_.dice.chance(90)) {  // otherwise the position is never found
    world_.at(me_, world_.dice.within(milliseconds(600)), [this, call] {
      ++world_.counts.places;
      places_[call] = place_of(me_);
      plane_.located(call, place_of(me_), world_.events.now());
    });
  }
  return report;
}

void SimulatedRank::send(Rank peer, const ControlMessage& message) { world_.send(me_, peer, message); }

void SimulatedRank::end_call(const CallId& call, const CallEnd& why) {
  world_.log(me_, " is informed that ", call, " ends: ", why.text);
  check_cause(call, why);
  check_failure(call, why);
  if (ended_.contains(call) || judged_.contains(call))
    world_.fail("a call ended twice at rank " + std::to_string(me_));
  ended_[call] = world_.events.now();
  surveys_.erase(call);
  if (running_ == call) {
    if (!leaving_) mine(call).state = State::kGivenUp;
    go_on_after(call);
  } else if (mine(call).state == State::kNotMade) {
    ended_early_[call] = why;
  }
}

void SimulatedRank::failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) {
  check_report(call, why, statuses);
  ended_.erase(call);
  judged_.insert(call);
  if (awaited_report_ != call) return;
  awaited_report_.reset();
  go_on_after(call);
}

void SimulatedRank::surveyed(const CallId& call, std::vector<RankStatus> statuses) {
  ++world_.counts.surveys;
  if (surveys_.erase(call) == 0) world_.fail("the answer to no survey at rank " + std::to_string(me_));
  check_statuses(call, statuses);
}

void SimulatedRank::peer_died(Rank peer, const std::string& cause) {
  check_death(peer, cause);
  for (const auto& [group, all] : world_.scenario.groups) {
    if (std::find(all.begin(), all.end(), peer) != all.end()) out_of(group);
  }
}

void SimulatedRank::peer_exited(Rank peer) {
  check_exit(peer);
  for (const auto& [group, all] : world_.scenario.groups) {
    if (std::find(all.begin(), all.end(), peer) == all.end()) continue;
    out_.insert(group);
    // Data that the peer sent before it left still completes a call.
    if (!running_.has_value() || running_->group != group) continue;
    if (world_.book[*running_].ranks[peer].state == State::kDone) continue;
    world_.at(me_, Time(0), [this, call = *running_, peer] {
      give_up(call, Code::kPeerExited, peer, "rank " + std::to_string(peer) + " has left");
    });
  }
}

void SimulatedRank::excluded(Rank by, const std::string& cause) {
  check_exclusion(by, cause);
  is_excluded = true;
  for (const auto& [group, all] : world_.scenario.groups) out_of(group);
}

}  // namespace pc::simulation
