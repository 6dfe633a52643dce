// Arrays of a call in rounds that other ranks read in place, instead of through the ring. Such an
// array is in the heap of its rank, which all ranks have mapped, or in the rank's private memory,
// from which the kernel copies (single copy).
#include <cstring>
#include <string>

#include "engine/shm/rounds.h"

namespace pc::shm {
namespace {

CopyPathTuner::Kind kind_of(const Exchange& exchange) {
  const Request& request = exchange.request;
  return {request.collective, is_rooted(request.collective) && exchange.launch.rank == request.root,
          exchange.traffic.nbytes()};
}

// Returns whether it pays that other ranks read arrays in place. In an allreduce, reduce or
// broadcast, ranks overwrite data that other ranks have just read, and must fetch each cache line
// of the data from the caches of those ranks. That costs more than copies, unless the array fits
// into no cache anyway.
bool pays(const Exchange& exchange) {
  const Request& request = exchange.request;
  const bool is_overwritten =
      exchange.traffic.passes_results_on() || request.collective == Collective::kBroadcast;
  return exchange.inter_domain == nullptr &&
         (!is_overwritten ||
          elements_of(request, exchange.launch.size).nbytes() >= exchange.group.limits().in_place_from);
}

// Chooses the path of an input that may be read in place but is not in the heap.
CopyPath choose_path(Rounds& rounds) {
  const Exchange& exchange = rounds.exchange;
  Group& group = exchange.group;
  const bool is_moved = !exchange.traffic.combines() && exchange.arrays.input() != nullptr;
  const bool is_large = exchange.traffic.nbytes() >= group.limits().private_from;
  if (!is_moved || !is_large || !group.reads_private_memory()) return CopyPath::kRing;
  const CopyPathTuner::Chosen chosen = group.copy_paths().next(kind_of(exchange));
  if (chosen.path == CopyPath::kPrivateMemory && !Host::can_be_read(exchange.arrays.input()))
    return CopyPath::kRing;
  if (chosen.on_trial) rounds.trial = {chosen.path, std::chrono::steady_clock::now()};
  return chosen.path;
}

}  // namespace

Rounds::Opening open_rounds(Rounds& rounds) {
  const Exchange& exchange = rounds.exchange;
  const Traffic& traffic = rounds.traffic;
  const Request& request = exchange.request;
  Rounds::Opening opening{{rounds.group.stream_base(kInputs), rounds.group.stream_base(kResults)}, {}};
  const auto expose = [&](StreamKind kind, const std::byte* array, std::size_t nbytes) {
    const std::optional<HeapPlace> place =
        array == nullptr ? std::nullopt : exchange.host.heap().find(array, nbytes);
    rounds.exposes[kind] = place.has_value();
    if (place) opening.arrays[kind] = *place;
  };
  rounds.exposes[kInputs] = rounds.exposes[kResults] = false;
  rounds.trial.reset();
  const bool may_expose = pays(exchange);
  const bool stays =
      traffic.writes() && traffic.inputs_stay(exchange.arrays.input() == exchange.arrays.output());
  if (may_expose && stays) expose(kInputs, exchange.arrays.input(), request.in.nbytes());
  if (may_expose && traffic.passes_results_on())
    expose(kResults, exchange.arrays.output(), request.out.nbytes());
  // If arrays are exposed or rounds are exchanged with other hosts, the time of the call would not
  // show which path is faster.
  const bool has_paths = stays && !rounds.exposes[kInputs] && exchange.inter_domain == nullptr;
  if (has_paths && choose_path(rounds) == CopyPath::kPrivateMemory) {
    rounds.exposes[kInputs] = true;
    opening.arrays[kInputs] = {0, 0, reinterpret_cast<uintptr_t>(exchange.arrays.input())};
  }
  return opening;
}

bool find_arrays(Rounds& rounds, Rank peer) {
  Exchange& exchange = rounds.exchange;
  Group& group = rounds.group;
  const Traffic& traffic = rounds.traffic;
  Rounds::Incoming& from = rounds.from(peer);
  std::memcpy(&from.opening, group.inline_message(peer), sizeof from.opening);
  for (const StreamKind kind : {kInputs, kResults}) {
    const HeapPlace& place = from.opening.arrays[kind];
    if (place.pages == 0 && place.offset == 0) continue;
    const std::size_t nbytes = kind == kResults     ? traffic.piece(peer).nbytes
                               : traffic.combines() ? rounds.own_sum().nbytes
                                                    : traffic.incoming(peer).nbytes;
    const std::size_t begin = kind == kResults ? traffic.piece(peer).begin : traffic.place_in_input(peer);
    if (place.pages != 0) {
      const Result<const std::byte*> array = group.array(peer, place, begin + nbytes);
      if (!array.is_ok()) return exchange.fail(array.status());
      from.arrays[kind] = array.value() + begin;
    } else if (kind == kResults || traffic.combines() || !group.reads_private_memory()) {
      return exchange.fail(Status(Code::kMismatch, "rank " + std::to_string(peer) +
                                                       " says that its array is where none can be; its "
                                                       "shared memory is damaged")
                               .with_peer(peer));
    } else {
      from.private_address = place.offset + begin;
    }
  }
  return true;
}

// Data that was read from a rank's exposed arrays is valid only if the rank was still in the call
// afterwards.
bool stayed_exposed(Rounds& rounds) {
  for (Rank r = 0; r < rounds.launch.size; ++r) {
    const auto& [opening, arrays, private_address, taken] = rounds.from(r);
    const bool was_read = private_address != 0 || arrays[kInputs] != nullptr || arrays[kResults] != nullptr;
    if (was_read && !rounds.group.stays_exposed(r)) return false;
  }
  return true;
}

// The caller may use its arrays again when the other ranks have read what they need. The time of a
// trial counts until all ranks are done.
bool are_given_back(Rounds& rounds) {
  Group& group = rounds.group;
  if (!rounds.exposes[kInputs] && !rounds.exposes[kResults] && !rounds.trial) return true;
  for (Rank r = 0; r < rounds.launch.size; ++r) {
    if (r != rounds.launch.rank && !group.is_done(r)) return false;
  }
  if (rounds.trial)
    group.copy_paths().took(rounds.trial->path, kind_of(rounds.exchange),
                            std::chrono::steady_clock::now() - rounds.trial->began);
  return true;
}

}  // namespace pc::shm
