//   Idea     A small call among several hosts. One rank of each host leads: it combines what the
//            ranks of the host announce, exchanges that with the leaders of the other hosts, and
//            only then announces the call itself, with the result. The other ranks read only the
//            leader's slot.
//
//              follows   announces its array --.                                  .--> takes result
//              leads                           '-> combines <= hosts => announces -'
//
//   Cost     Two exchanges of slots, and the plan of the leaders between them.
//   Limits   In a call with a root, the root leads its host. In a broadcast the root waits for no
//            rank. In a reduce the ranks that follow wait for no rank.
#include "engine/shm/small_call.h"

#include <cstring>

namespace pc::shm {

bool LeaderCall::lead() {
  if (!position_ && !begin()) return false;
  const Result<bool> is_done = exchange_.inter_domain->take(0);
  if (!is_done.is_ok()) return exchange_.fail(is_done.status());
  if (!is_done.value()) return false;
  Group& group = exchange_.group;
  const std::size_t nbytes = exchange_.traffic.nbytes();
  const bool combines = exchange_.traffic.combines();
  while (exchange_.keep_own_part()) {  // the root of a broadcast has the result
  }
  const CallArrays& arrays = exchange_.arrays;
  const std::byte* const result = is_inline() ? inline_ : group.at(*position_);
  if (arrays.has_output() && (combines || !arrays.has_input())) arrays.take(result, 0, nbytes);
  const Place place{*position_, nbytes};
  std::memcpy(group.payload(), is_inline() ? static_cast<const void*>(result) : &place,
              is_inline() ? nbytes : sizeof place);
  exchange_.announce();
  if (combines) group.all_have_announced();
  return true;
}

// Begins the exchange between hosts with the combined arrays of this host or, in a broadcast, with
// the root's array.
bool LeaderCall::begin() {
  Group& group = exchange_.group;
  const Launch& launch = exchange_.launch;
  const bool combines = exchange_.traffic.combines();
  if (!group.catch_up_to_lead(launch.sequence, fingerprint_of(launch.digest))) return false;
  if (combines && !exchange_.visit_peers([&](Rank peer) { return exchange_.compare(peer); })) return false;
  const std::size_t nbytes = exchange_.traffic.nbytes();
  const std::optional<uint64_t> position =
      is_inline() ? std::optional<uint64_t>(0) : exchange_.allocate(nbytes);
  if (!position) return false;
  std::byte* const to = is_inline() ? inline_ : group.at(*position);
  if (combines) {
    const auto sources = exchange_.contributions([&](Rank peer) { return exchange_.message(peer); });
    if (sources.empty()) return false;
    exchange_.arrays.combine(sources, 0, CallArrays::kNowhere, nbytes, to, group.stores_for_all());
  } else if (exchange_.arrays.has_input()) {
    exchange_.arrays.put(to, 0, nbytes, group.copy_for(launch.rank));
  }
  position_ = position;
  exchange_.inter_domain->exchange(0, {to, nbytes});
  return true;
}

bool follow(Exchange& exchange) {
  if (exchange.request.collective == Collective::kReduce) return true;
  const Rank leader = exchange.traffic.leader();
  if (!exchange.compare(leader)) return false;
  const std::byte* const message = exchange.message(leader);
  if (message == nullptr) return false;
  exchange.arrays.take(message, 0, exchange.traffic.nbytes());
  if (exchange.traffic.combines()) exchange.group.all_have_announced();  // the leader has seen all ranks
  return true;
}

}  // namespace pc::shm
