// The data of calls in a simulated world: which ranks can complete when, and which ranks detect a
// foreign call by themselves.
#include <algorithm>

#include "simulation/simulated_rank.h"

namespace pc::simulation {

// Returns true if the receiver's data in this call comes from the sender.
bool SimulatedRank::receives_from(const CallId& call, Rank receiver, Rank sender) {
  const std::vector<Rank>& all = world_.scenario.groups.at(call.group);
  const Entry& entry = world_.book[call].ranks[receiver];
  if (receiver == sender || entry.state == State::kNotMade) return false;
  switch (entry.kind) {
    case Kind::kRooted: return sender == entry.root;
    case Kind::kBarrier: return true;
    case Kind::kAll: break;
  }
  const auto at = std::find(all.begin(), all.end(), receiver);
  return sender == (at == all.begin() ? all.back() : *std::prev(at));
}

// Returns the rank that this rank waits for, as far as it can know.
Rank SimulatedRank::waits_for(const CallId& call) {
  const std::vector<Rank>& all = world_.scenario.groups.at(call.group);
  std::vector<Rank> senders;
  for (const Rank rank : all) {
    if (receives_from(call, me_, rank)) senders.push_back(rank);
  }
  return senders.empty() ? me_ : senders[world_.dice.below(senders.size())];
}

void SimulatedRank::made(const CallId& call) {
  Record& record = world_.book[call];
  const std::vector<Rank>& all = world_.scenario.groups.at(call.group);
  const auto has_sent = [&](Rank rank, uint64_t digest) {
    const Entry& entry = record.ranks[rank];
    return entry.digest == digest && (entry.state == State::kRunning || entry.state == State::kDone);
  };
  for (const Rank rank : all) {
    const Entry entry = record.ranks[rank];
    if (entry.state != State::kRunning) continue;
    const bool can_complete =
        entry.kind == Kind::kRooted
            ? has_sent(entry.root, entry.digest)
            : std::all_of(all.begin(), all.end(), [&](Rank other) { return has_sent(other, entry.digest); });
    if (!can_complete) continue;
    const Time delay = world_.dice.within(milliseconds(rank == entry.root ? 3 : 20));
    world_.at(rank, delay, [this, rank, call] { world_.rank(rank).finish(call); });
  }
  for (const Rank rank : all) {
    if (record.ranks[rank].state == State::kNotMade || record.ranks[rank].digest == mine(call).digest)
      continue;
    for (const auto& [receiver, sender] : {std::pair(me_, rank), std::pair(rank, me_)}) {
      if (!receives_from(call, receiver, sender) || !world_.dice.chance(world_.scenario.detects_percent))
        continue;
      world_.at(receiver, world_.dice.within(milliseconds(30)),
                [this, call, to = receiver, from = sender] { world_.rank(to).see_foreign_call(call, from); });
    }
  }
}

void SimulatedRank::finish(const CallId& call) {
  if (running_ != call) return;
  Record& record = world_.book[call];
  // data that this rank would have forwarded may or may not have arrived
  for (const auto& [rank, entry] : record.ranks) {
    if (entry.state == State::kGivenUp && world_.dice.chance(50)) return;
  }
  Entry& entry = mine(call);
  world_.log(me_, " completes ", call);
  entry.state = State::kDone;
  if (entry.kind != Kind::kRooted && entry.made_at >= world_.quiet_at())
    good_barriers_[call.group].insert(call.sequence);
  running_.reset();
  next_step();
}

void SimulatedRank::see_foreign_call(const CallId& call, Rank made_by) {
  give_up(call, Code::kMismatch, me_, "rank " + std::to_string(made_by) + " sent another call's data");
}

}  // namespace pc::simulation
