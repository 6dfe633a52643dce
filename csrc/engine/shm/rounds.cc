//   Idea     The data is a stream of chunks, in rings or in arrays that other ranks read in place.
//            An allreduce or reduce cuts the array into one piece per rank. Each rank combines its
//            piece and passes the result on; these stages overlap. In the other collectives, ranks
//            put, and then take or combine.
//   n = 2    rank 0   put: x[1]c0  put: x[1]c1      put: x[1]c2 ...
//                                  combine: x[0]c0  combine: x[0]c1 ...
//                                                   take: x[1]c0 ...
//            put       copies what other ranks need of this rank into its ring
//            combine   combines its own piece from all rings, into x and its ring
//            take      copies the results of the other ranks into x
//   Cost     Per rank and element an allreduce writes (n - 1) / n + 1 / n and reads 2 (n - 1) / n
//            through shared memory.
//   Source   R. Rabenseifner, Optimization of collective reduction operations, ICCS 2004, moves the
//            same amount.
//   Limits   A round costs an announcement, so small arrays use one exchange (small_call.cc).
#include "engine/shm/rounds.h"

#include <algorithm>
#include <cstring>

namespace pc::shm {
namespace {

// number of passes over the stages before the driving thread checks its deadline
constexpr int kMostPasses = 16;

}  // namespace

bool Rounds::announce() {
  if (!group.catch_up(launch.sequence)) return false;
  if (Status made = group.make_rings(); !made.is_ok()) return exchange.fail(std::move(made));
  const Opening opening = open_rounds(*this);
  std::memcpy(group.payload(), &opening, sizeof opening);
  count_rounds();
  exchange.announce();
  hold_what_is_not_passed_on(*this);
  const auto is_taken = [](const Incoming& each) { return each.taken.count != 0; };
  const bool takes = std::any_of(incoming.begin(), incoming.end(), is_taken);
  const bool reads_inputs = traffic.combines() ? combined.count != 0 : takes;
  if (!reads_inputs) group.set_read(kInputs, kAllRounds);
  if (!takes || !traffic.wants_results()) group.set_read(kResults, kAllRounds);
  stage = Stage::kComparing;
  return true;
}

void Rounds::count_rounds() {
  const auto rounds_of = [chunk = traffic.chunk_nbytes()](const Traffic::Span& all) {
    return static_cast<uint32_t>((all.nbytes + chunk - 1) / chunk);
  };
  const uint32_t least = traffic.sizes_nbytes() == 0 ? 0 : 1;  // sizes are announced and compared in round 0
  const bool puts = traffic.writes() && !exposes[kInputs];
  put = combined = {};
  positions.clear();
  passed_on = 0;
  incoming.assign(static_cast<std::size_t>(launch.size), Incoming{});
  for (Rank r = 0; r < launch.size; ++r) {
    const bool is_other = r != launch.rank;
    uint32_t& count = from(r).taken.count;
    if (puts && traffic.is_addressed() == is_other)
      put.count = std::max({put.count, rounds_of(traffic.outgoing(r)), least});
    if (traffic.wants_results() && is_other) count = rounds_of(traffic.piece(r));
    if (!traffic.combines() && traffic.reads_from(r)) count = std::max(rounds_of(traffic.incoming(r)), least);
  }
  const Contributors ranks = traffic.contributors();
  if (traffic.combines() && ranks.from != ranks.to) combined.count = rounds_of(own_sum());
}

bool Rounds::go_on() {
  if (stage == Stage::kComparing) {
    if (!compare_all()) return false;
    stage = Stage::kMoving;
  }
  if (stage == Stage::kMoving) {
    if (!move() || !stayed_exposed(*this)) return false;
    group.set_done();
    stage = Stage::kLeaving;
  }
  return are_given_back(*this);
}

// Compares the call with each peer before any of the peer's data is used.
bool Rounds::compare_all() {
  const bool all_are_seen = exchange.visit_peers([this](Rank peer) {
    if (!traffic.reads_from(peer) && !traffic.wants_results()) return true;
    if (exchange.compare(peer)) return find_arrays(*this, peer);
    // That rank is late. Meanwhile this rank continues its plans, because other hosts may wait for
    // their next steps.
    for (bool moved = true; moved && exchange.failure.is_ok();) {
      moved = put_inputs(*this);
      if (exchange.inter_domain != nullptr) moved |= pass_on(*this);
    }
    return false;
  });
  if (all_are_seen) exchange.note_seen();
  return all_are_seen;
}

bool Rounds::move() {
  const StreamKind kind = traffic.passes_results_on() ? kResults : kInputs;
  bool moved = true;
  for (int pass = 0; pass < kMostPasses && moved; ++pass) {
    group.awaited().clear();
    moved = put_inputs(*this);
    moved |= combine_own_piece(*this);
    if (exchange.inter_domain != nullptr) moved |= pass_on(*this);
    bool taken = false;
    for (Rank step = 1; step < launch.size; ++step)
      taken |= take(*this, kind, (launch.rank + step) % launch.size);
    uint32_t read = kAllRounds;
    for (const Incoming& each : incoming) {
      if (!each.taken.is_done()) read = std::min(read, each.taken.next);
    }
    if (taken) group.set_read(kind, read);
    moved |= taken;
    if (!exchange.failure.is_ok()) return false;
    if (!moved) moved = exchange.keep_own_part();
    if (!moved)
      return put.is_done() && combined.is_done() && passed_on == positions.size() && read == kAllRounds;
  }
  group.awaited().clear();
  exchange.more_to_do = true;
  return false;
}

Traffic::Span Rounds::part(const Traffic::Span& all, uint32_t round) const {
  const std::size_t begin = std::min(offset(round), all.nbytes);
  return {all.begin + begin, std::min(traffic.chunk_nbytes(), all.nbytes - begin)};
}

Traffic::Span Rounds::own_sum() const {
  return traffic.passes_results_on() ? traffic.piece(launch.rank) : traffic.incoming(launch.rank);
}

bool Rounds::others_want_results() const {
  const Request& request = exchange.request;
  return traffic.passes_results_on() &&
         (request.collective == Collective::kAllreduce || launch.rank != request.root);
}

const std::byte* Rounds::message(Rank peer, StreamKind kind, uint32_t round, std::size_t begin,
                                 std::size_t nbytes) {
  const Incoming& sender = from(peer);
  const std::byte* const array = sender.arrays[kind];
  if (array != nullptr && kind == kInputs) return array + offset(round);
  const std::optional<uint64_t> position = group.published(peer, kind, sender.opening.base[kind], round);
  if (!position) return nullptr;
  if (array != nullptr) return array + offset(round);
  const std::byte* const found = group.message(peer, {*position, begin + nbytes}, exchange.failure);
  return found == nullptr ? nullptr : found + begin;
}

void Rounds::take_message(Rank writer, uint32_t round, const Traffic::Span& part,
                          const std::byte* message) const {
  const auto take = [&](std::size_t place, std::size_t begin, std::size_t nbytes) {
    exchange.arrays.take(message + place, begin, nbytes);
  };
  visit_pieces(writer, round, part, traffic.combines(), take);
}

}  // namespace pc::shm
