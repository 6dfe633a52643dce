// Checks what a control plane reports to its rank against the true history.
#include <algorithm>

#include "simulation/simulated_rank.h"

namespace pc::simulation {
namespace {

// Returns true for one of the true reasons, or for the mismatch behind one, which ranks find when
// they compare all reports.
bool is_true(const CallEnd& why, const Record& record) {
  return std::any_of(record.ends.begin(), record.ends.end(), [&](const CallEnd& end) {
    const bool behind = why.code == Code::kMismatch && record.differs() && why.text.ends_with(end.text);
    return end.by == why.by && ((end.code == why.code && end.text == why.text) || behind);
  });
}

std::string named(const char* what, Rank rank) {
  return std::string(what) + " at rank " + std::to_string(rank);
}

}  // namespace

void SimulatedRank::check_cause(const CallId& call, const CallEnd& why) {
  Record& record = world_.book[call];
  if (is_true(why, record)) return;
  const bool sees_mismatch = why.code == Code::kMismatch && why.by == me_ && record.differs();
  const bool sees_leaving = why.code == Code::kPeerExited && record.ranks[why.by].state == State::kLeaving;
  if (!sees_mismatch && !sees_leaving)
    return world_.fail(named("a call ends for no true reason", me_) + ": " + why.text);
  ++world_.counts.found_by_asking;
  record.ends.push_back(why);
}

// After the last fault calls succeed: all ranks are in step. Only a departure still ends calls.
void SimulatedRank::check_failure(const CallId& call, const CallEnd& why) {
  const std::map<Rank, Entry>& ranks = world_.book[call].ranks;
  const bool begun_in_quiet = std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank_and_entry) {
    const Entry& entry = rank_and_entry.second;
    return entry.state == State::kNotMade || entry.made_at >= world_.quiet_at();
  });
  if (begun_in_quiet && why.code != Code::kPeerExited)
    world_.fail(named("a call fails though nothing goes wrong any more", me_));
}

void SimulatedRank::check_report(const CallId& call, const CallEnd& why,
                                 const std::vector<RankStatus>& statuses) {
  world_.log(me_, " has the failure report on ", call, ": ", name_of(why.code), " by ", why.by, ": ",
             why.text);
  ++world_.counts.failure_reports;
  world_.counts.mismatches += why.code == Code::kMismatch;
  world_.counts.timeouts += why.code == Code::kTimeout;
  world_.counts.exits_seen += why.code == Code::kPeerExited;
  const auto ended = ended_.find(call);
  if (ended == ended_.end())
    return world_.fail(named("a failure report on a call that was not given up, or a second one", me_));
  if (!was_hurt && world_.events.now() > ended->second + ControlPlane::kWaitLimit + milliseconds(2))
    world_.fail(named("a late failure report", me_));
  const Record& record = world_.book[call];
  if (!is_true(why, record)) world_.fail(named("a failure report for no true reason", me_) + ": " + why.text);
  if (why.code == Code::kMismatch && !record.differs()) world_.fail(named("a mismatch of equal calls", me_));
  if (why.code == Code::kTimeout || why.code == Code::kPeerExited) {
    std::set<uint64_t> digests;
    for (const auto& [rank, report, entered_late] : statuses) {
      if (report.made() && report.state != State::kLeaving) digests.insert(report.digest);
    }
    if (digests.size() > 1) world_.fail(named("disagreement reported as something else", me_));
  }
  check_statuses(call, statuses);
}

void SimulatedRank::check_statuses(const CallId& call, const std::vector<RankStatus>& statuses) {
  const std::span<const Rank> group = members(call.group);
  std::vector<Rank> all(group.begin(), group.end());
  if (!call.is_call()) all = {call.asker(), call.asked()};
  const bool complete = std::equal(all.begin(), all.end(), statuses.begin(), statuses.end(),
                                   [](Rank rank, const RankStatus& row) { return rank == row.rank; });
  if (!complete) world_.fail(named("not one row per member", me_));
  for (const auto& [rank, report, entered_late] : statuses) {
    const Entry truth = call.is_call() ? world_.book[call].ranks[rank] : Entry{};
    if (report.state == State::kUnknown) {
      world_.counts.unknown_groups += call.group != kWorldGroup;
      if (call.group == kWorldGroup && !was_hurt && !world_.rank(rank).was_hurt)
        world_.fail(named("no answer of a healthy rank", me_));
      continue;
    }
    const bool has_place = !report.where.empty();
    if (report.site != site_of(rank) || (has_place && report.where != place_of(rank)))
      world_.fail(named("rows are mixed up", me_));
    if (has_place && report.where_follows) world_.fail(named("a place that is known is to follow", me_));
    if (report.made() && report.digest != truth.digest) world_.fail(named("a row has a wrong digest", me_));
    const bool was_running = report.state == State::kRunning && truth.state >= State::kRunning;
    if (report.made() && !was_running && report.state != truth.state)
      world_.fail(named("a row has a wrong state", me_));
  }
}

void SimulatedRank::check_death(Rank peer, const std::string& cause) {
  world_.log(me_, " learns that ", peer, " is dead: ", cause);
  world_.counts.deaths_reported += cause.find("says so") != std::string::npos;
  if (!world_.rank(peer).dead && !world_.rank(peer).was_cut && !was_cut)
    world_.fail(named("one that lives is reported dead", me_));
  if (!ended_peers_.insert(peer).second) world_.fail(named("the same end was reported twice", me_));
}

void SimulatedRank::check_exit(Rank peer) {
  world_.log(me_, " learns that ", peer, " has left");
  if (!world_.rank(peer).gone) world_.fail(named("one that lives is said to have left", me_));
  if (!ended_peers_.insert(peer).second) world_.fail(named("the same end was reported twice", me_));
}

void SimulatedRank::check_exclusion(Rank by, const std::string& cause) {
  world_.log(me_, " is held for dead by ", by, ": ", cause);
  ++world_.counts.exclusions;
  if (!was_cut) world_.fail(named("one without fault was excluded", me_));
}

std::string SimulatedRank::unsettled() const {
  const std::string rank = "rank " + std::to_string(me_);
  if (!ended_.empty()) return rank + " has no failure report yet";
  if (!surveys_.empty()) return rank + " has no answer to a survey yet";
  const bool has_group = std::any_of(world_.scenario.groups.begin(), world_.scenario.groups.end(),
                                     [&](const auto& group) { return !is_out(group.first); });
  if (running_.has_value() && !has_group) return rank + " still waits";
  const std::vector<int>& host = world_.scenario.host;
  const bool all_near = std::equal(host.begin() + 1, host.end(), host.begin());
  if (all_near && plane_.next_tick().has_value()) return rank + " wakes for nothing";
  return "";
}

}  // namespace pc::simulation
