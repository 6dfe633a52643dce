// Puts the data of this rank's input that other ranks need into the ring, one round at a time.
#include <cstring>

#include "engine/shm/rounds.h"

namespace pc::shm {
namespace {

// largest number of rounds in the ring before the first of them is combined
constexpr uint32_t kMostAhead = 4;

void put_part(const Rounds& rounds, Rank reader, const Traffic::Span& part, std::byte* to) {
  const auto put = [&](std::size_t place, std::size_t begin, std::size_t nbytes) {
    rounds.exchange.arrays.put(to + place, begin, nbytes, rounds.group.copy_for(reader));
  };
  rounds.visit_pieces(reader, rounds.put.next, part, !rounds.traffic.combines(), put);
}

// Puts one message that all ranks read. If hosts exchange it, they do so before the ranks read it.
bool put_for_all(Rounds& rounds) {
  Exchange& exchange = rounds.exchange;
  const Rank self = rounds.launch.rank;
  const uint32_t round = rounds.put.next;
  const Traffic::Span part = rounds.part(rounds.traffic.outgoing(self), round);
  const std::optional<uint64_t> position =
      rounds.group.allocate(part.nbytes, {rounds.launch.sequence, round, kInputs});
  if (!position) return false;
  const bool is_here = exchange.arrays.has_input();  // otherwise the data arrives from another host
  if (is_here) put_part(rounds, self, part, rounds.group.at(*position));
  ++rounds.put.next;
  if (exchange.inter_domain != nullptr && !rounds.traffic.combines())
    return exchange_between_hosts(rounds, round, *position, part.nbytes), true;
  rounds.group.publish(kInputs, round, *position);
  // now, while the data is still in a cache
  if (exchange.kept < rounds.offset(rounds.put.next)) exchange.keep_own_part();
  return true;
}

// Puts one message with a part for each reader. If only sender and receiver know the size of a
// part, the sizes precede the parts.
bool put_for_each(Rounds& rounds) {
  const Launch& launch = rounds.launch;
  const uint32_t round = rounds.put.next;
  const std::size_t chunk = rounds.traffic.chunk_nbytes();
  const std::size_t sizes = round == 0 ? rounds.traffic.sizes_nbytes() : 0;
  const std::size_t nbytes = sizes + chunk * (static_cast<std::size_t>(launch.size) - 1);
  const std::optional<uint64_t> position = rounds.group.allocate(nbytes, {launch.sequence, round, kInputs});
  if (!position) return false;
  for (Rank reader = 0; reader < launch.size; ++reader) {
    if (reader == launch.rank) continue;
    const std::size_t number = part_number(launch.rank, reader);
    const Traffic::Span all = rounds.traffic.outgoing(reader);
    const uint64_t whole = all.nbytes;
    std::byte* const to = rounds.group.at(*position);
    put_part(rounds, reader, rounds.part(all, round), to + sizes + number * chunk);
    if (sizes != 0) std::memcpy(to + number * sizeof whole, &whole, sizeof whole);
  }
  rounds.group.publish(kInputs, rounds.put.next++, *position);
  return true;
}

}  // namespace

bool put_inputs(Rounds& rounds) {
  const InterDomainExchange* const inter_domain = rounds.exchange.inter_domain;
  if (rounds.put.is_done()) return false;
  if (inter_domain != nullptr && !rounds.traffic.combines() && !inter_domain->has_capacity()) return false;
  // Puts do not run far ahead of the other stages, because the memory that is read here is written
  // when the result of the same round is taken.
  if (!rounds.combined.is_done() && rounds.put.next >= rounds.combined.next + kMostAhead) return false;
  return rounds.traffic.is_addressed() ? put_for_each(rounds) : put_for_all(rounds);
}

}  // namespace pc::shm
