// One call in a group's shared memory, as all its algorithms see it: the caller's arrays, which rank has what for which other
// (Traffic), and the slots in which the members announce the call (Group). small_call.h and rounds.h have the
// algorithms.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/shm/call_arrays.h"
#include "engine/shm/group.h"
#include "engine/shm/inter_domain_exchange.h"
#include "engine/shm/traffic.h"

namespace pc::shm {

// What returns false, null or nothing has noted in the group what it waits for, or has set `failure`.
// Thread-safety: the run's, which prepares it again and again.
struct Exchange {
  Host& host;
  Group& group;
  const Request& request;
  const Launch& launch;
  InterDomainExchange* inter_domain =
      nullptr;  // with whom else something is exchanged; not owned, outlives the call
  Status failure = {};
  bool more_to_do = false;  // without waiting
  Rank next_peer = 0;       // of visit_peers()
  std::size_t kept = 0;     // bytes of the own part
  Traffic traffic = {};
  CallArrays arrays = {};
  std::vector<const std::byte*> sources = {};  // by rank

  void prepare(const Division& division,
               InterDomainExchange* others);  // for what `request` and `launch` now describe
  bool join();
  void announce() { group.announce(launch.sequence, fingerprint_of(launch.digest)); }
  // Whether that rank has announced this call. If it has announced another one, that is a failure.
  bool compare(Rank peer) {
    const Group::Seen seen = group.look(peer);
    return seen == Group::Seen::kSame || (seen == Group::Seen::kOther && fail(differs(peer)));
  }
  // Calls `visit(peer)` for each of the others, and goes on where that has returned false before.
  template <class Visit>
  bool visit_peers(Visit&& visit) {
    for (; next_peer < launch.size; ++next_peer) {
      if (next_peer != launch.rank && !visit(next_peer)) return false;
    }
    return true;
  }
  void note_seen();  // once visit_peers() has seen all that this rank needs

  // Of a small call: room for its message in this rank's ring, and what a rank that has announced it has for this one.
  std::optional<uint64_t> allocate(std::size_t nbytes);
  const std::byte* message(Rank peer);
  // What is combined, in this order: `message_of(peer)` of each contributor, and null for this rank, whose array is the input.
  // Empty: one of them is not there yet.
  template <class MessageOf>
  std::span<const std::byte*> contributions(MessageOf&& message_of) {
    const Contributors ranks = traffic.contributors();
    sources.assign(static_cast<std::size_t>(launch.size), nullptr);
    for (Rank r = ranks.from; r < ranks.to; ++r) {
      if (r == launch.rank) continue;
      if ((sources[static_cast<std::size_t>(r)] = message_of(r)) == nullptr) return {};
    }
    return std::span(sources).subspan(static_cast<std::size_t>(ranks.from),
                                      static_cast<std::size_t>(ranks.to - ranks.from));
  }
  // Moves the next piece of what this rank has for itself. False: all of it is where it belongs.
  bool keep_own_part();
  // Every rank has a part of the array, and stands here for those of other hosts too.
  bool is_of_parts() const { return inter_domain != nullptr && has_parts(request.collective); }
  bool fail(Status why) {
    failure = std::move(why);
    return false;
  }
  Status differs(Rank peer) const;
};

Status has_left(Rank peer);  // before it made this call

}  // namespace pc::shm
