//   Idea     One exchange of slots. Every rank that has data for other ranks puts it into its slot,
//            or into its ring if the data is longer, and announces the call. Then it takes what it
//            needs from the slots of the other ranks, or combines all of them.
//   Cost     A rank writes one slot and reads n - 1, each with its message.
//   n = 2    rank 0   write slot 0 ---.   .--- read slot 1, combine
//            rank 1   write slot 1 ----\-/---- read slot 0, combine
//   Limits   Every rank combines everything, so it reads n - 1 arrays. Larger arrays use rounds
//            (rounds.cc).
#include "engine/shm/small_call.h"

#include <cstring>

namespace pc::shm {
namespace {

// Puts the whole input for all readers, or each reader's part.
void put_message(Exchange& exchange, std::byte* message) {
  const Traffic& traffic = exchange.traffic;
  const Rank self = exchange.launch.rank;
  if (!traffic.is_addressed()) {
    const Traffic::Span all = traffic.outgoing(self);
    return exchange.arrays.put(message, all.begin, all.nbytes, exchange.group.copy_for(self));
  }
  for (Rank r = 0; r < exchange.launch.size; ++r) {
    if (r == self) continue;
    const Traffic::Span part = traffic.outgoing(r);
    exchange.arrays.put(message + traffic.place_in_message(self, r), part.begin, part.nbytes,
                        exchange.group.copy_for(r));
  }
}

bool take_message(Exchange& exchange, Rank peer) {
  const Traffic::Span part = exchange.traffic.incoming(peer);
  if (part.nbytes == 0) return true;
  const std::byte* const message = exchange.message(peer);
  if (message == nullptr) return false;
  exchange.arrays.take(message, part.begin, part.nbytes);
  return true;
}

bool combine_messages(Exchange& exchange) {
  const Traffic& traffic = exchange.traffic;
  const Contributors from = traffic.contributors();
  const Traffic::Span target = traffic.incoming(exchange.launch.rank);
  if (!exchange.arrays.has_output() || from.from == from.to || target.nbytes == 0) return true;
  const auto sources = exchange.contributions([&](Rank peer) { return exchange.message(peer); });
  if (sources.empty()) return false;
  exchange.arrays.combine(sources, traffic.outgoing(exchange.launch.rank).begin, target.begin, target.nbytes,
                          nullptr, Stores::kVector);
  return true;
}

}  // namespace

bool announce_small(Exchange& exchange) {
  Group& group = exchange.group;
  if (!group.catch_up(exchange.launch.sequence)) return false;
  const std::size_t nbytes = exchange.traffic.writes() ? exchange.traffic.message_nbytes() : 0;
  std::byte* message = group.payload();
  if (nbytes > kInlineNbytes) {
    const std::optional<uint64_t> position = exchange.allocate(nbytes);
    if (!position) return false;
    const Place place{*position, nbytes};
    std::memcpy(message, &place, sizeof place);
    message = group.at(*position);
  }
  if (nbytes != 0) put_message(exchange, message);
  exchange.announce();
  while (exchange.keep_own_part()) {  // while the other ranks enter the call
  }
  return true;
}

bool finish_small(Exchange& exchange) {
  const Traffic& traffic = exchange.traffic;
  const bool combines = traffic.combines();
  const bool all_are_seen = exchange.visit_peers([&](Rank peer) {
    if (!traffic.reads_from(peer)) return true;
    return exchange.compare(peer) && (combines || take_message(exchange, peer));
  });
  if (!all_are_seen || (combines && !combine_messages(exchange))) return false;
  exchange.note_seen();
  return true;
}

}  // namespace pc::shm
