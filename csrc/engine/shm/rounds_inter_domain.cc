// Rounds that are exchanged with other hosts. This rank's data of a round is in its ring. The
// exchange makes it the same on all hosts. Only then is it passed on to the ranks of this host.
#include "engine/shm/rounds.h"

namespace pc::shm {

void exchange_between_hosts(Rounds& rounds, uint32_t round, uint64_t position, std::size_t nbytes) {
  rounds.positions.push_back(position);
  rounds.exchange.inter_domain->exchange(round, {rounds.group.at(position), nbytes});
}

bool pass_on(Rounds& rounds) {
  Exchange& exchange = rounds.exchange;
  const Traffic& traffic = rounds.traffic;
  const Rank self = rounds.launch.rank;
  const uint32_t round = rounds.passed_on;
  if (round == rounds.positions.size()) return false;
  const Result<bool> is_done = exchange.inter_domain->take(round);
  if (!is_done.is_ok()) return exchange.fail(is_done.status());
  if (!is_done.value()) return false;
  const bool combines = traffic.combines();
  const uint64_t position = rounds.positions[round];
  const Traffic::Span part = rounds.part(combines ? rounds.own_sum() : traffic.outgoing(self), round);
  // The root of a broadcast already has the data.
  const bool takes = combines ? traffic.wants_results() : !exchange.arrays.has_input();
  if (takes || exchange.is_of_parts()) rounds.take_message(self, round, part, rounds.group.at(position));
  if (!combines || rounds.others_want_results())
    rounds.group.publish(combines ? kResults : kInputs, round, position);
  ++rounds.passed_on;
  hold_what_is_not_passed_on(rounds);
  return true;
}

void hold_what_is_not_passed_on(Rounds& rounds) {
  if (rounds.exchange.inter_domain != nullptr)
    rounds.group.hold(rounds.traffic.combines() ? kResults : kInputs, rounds.passed_on);
}

}  // namespace pc::shm
