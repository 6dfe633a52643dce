// Combines this rank's piece of the array, one round at a time: from all inputs, into its output
// and, if other ranks want the result, into its ring.
#include "engine/shm/rounds.h"

namespace pc::shm {

bool combine_own_piece(Rounds& rounds) {
  Exchange& exchange = rounds.exchange;
  Group& group = rounds.group;
  const Traffic& traffic = rounds.traffic;
  const Rank self = rounds.launch.rank;
  const uint32_t round = rounds.combined.next;
  if (rounds.combined.is_done() ||
      (exchange.inter_domain != nullptr && !exchange.inter_domain->has_capacity()))
    return false;
  // In place, the input is overwritten here. So what the other ranks want of the input must already
  // have been put into the ring.
  if (!traffic.is_addressed() && !rounds.put.is_done() && rounds.put.next <= round) return false;
  const Traffic::Span sum = rounds.part(rounds.own_sum(), round);
  const auto sources = exchange.contributions([&](Rank peer) {
    const std::size_t place = traffic.is_addressed() ? traffic.chunk_nbytes() * part_number(peer, self) : 0;
    return rounds.message(peer, kInputs, round, place, sum.nbytes);
  });
  if (sources.empty()) return false;

  const bool others_want_it = rounds.others_want_results() || exchange.inter_domain != nullptr;
  std::optional<uint64_t> position;
  if (others_want_it && rounds.exposes[kResults] && !group.has_entry(kResults, round)) return false;
  if (others_want_it && !rounds.exposes[kResults]) {
    position = group.allocate(sum.nbytes, {rounds.launch.sequence, round, kResults});
    if (!position) return false;
  }
  const Traffic::Span input{traffic.outgoing(self).begin + rounds.offset(round), sum.nbytes};
  const std::size_t out_begin = exchange.inter_domain == nullptr ? sum.begin : CallArrays::kNowhere;
  const auto combine = [&](std::size_t place, std::size_t begin, std::size_t nbytes) {
    // combine() has replaced this null by a pointer into the input, which differs for each piece
    exchange.sources[static_cast<std::size_t>(self)] = nullptr;
    exchange.arrays.combine(sources, begin, out_begin, nbytes,
                            position ? group.at(*position) + place : nullptr, group.stores_for_all());
  };
  rounds.visit_pieces(self, round, input, false, combine);
  if (exchange.inter_domain != nullptr) {
    exchange_between_hosts(rounds, round, *position, sum.nbytes);
  } else if (others_want_it) {
    group.publish(kResults, round, position.value_or(0));
  }
  ++rounds.combined.next;
  group.set_read(kInputs, rounds.combined.is_done() ? kAllRounds : rounds.combined.next);
  return true;
}

}  // namespace pc::shm
