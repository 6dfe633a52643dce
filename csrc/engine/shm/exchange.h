// The state of one call in a group's shared memory that all algorithms use: the caller's arrays,
// the data that each rank has for each other rank (Traffic), and the slots in which the members
// announce the call (Group). The algorithms are in small_call.h and rounds.h.
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

// A method that returns false, null or nullopt has recorded in the group what it waits for, or has
// set `failure`. Thread-safety: that of the run, which reuses the object.
struct Exchange {
  Host& host;
  Group& group;
  const Request& request;
  const Launch& launch;
  InterDomainExchange* inter_domain =
      nullptr;  // the exchange with other hosts, if any; not owned, outlives the call
  Status failure = {};
  bool more_to_do = false;  // progress is possible without waiting
  Rank next_peer = 0;       // position of visit_peers()
  std::size_t kept = 0;     // bytes of the own part that have been copied
  Traffic traffic = {};
  CallArrays arrays = {};
  std::vector<const std::byte*> sources = {};  // by rank

  void prepare(const Division& division,
               InterDomainExchange* others);  // for what `request` and `launch` now describe
  bool join();
  void announce() { group.announce(launch.sequence, fingerprint_of(launch.digest)); }
  // Returns whether that rank has announced this call. If it has announced a different call, that
  // is a failure.
  bool compare(Rank peer) {
    const Group::Seen seen = group.look(peer);
    return seen == Group::Seen::kSame || (seen == Group::Seen::kOther && fail(differs(peer)));
  }
  // Calls `visit(peer)` for each other rank. If `visit` returns false, the next visit_peers()
  // continues with that rank.
  template <class Visit>
  bool visit_peers(Visit&& visit) {
    for (; next_peer < launch.size; ++next_peer) {
      if (next_peer != launch.rank && !visit(next_peer)) return false;
    }
    return true;
  }
  void note_seen();  // call it once visit_peers() has seen all that this rank needs

  // For a small call. allocate() returns space for this rank's message in its ring; message()
  // returns what a rank that has announced the call has for this rank.
  std::optional<uint64_t> allocate(std::size_t nbytes);
  const std::byte* message(Rank peer);
  // Returns what is to be combined, in this order: `message_of(peer)` of each contributor, and null
  // for this rank, which contributes the input. Returns an empty span if one of the messages has
  // not arrived yet.
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
  // Copies the next piece of what this rank has for itself. Returns false if nothing is left to
  // copy.
  bool keep_own_part();
  // Returns whether every rank has a part of the array, so that this rank also represents parts of
  // ranks on other hosts.
  bool is_of_parts() const { return inter_domain != nullptr && has_parts(request.collective); }
  bool fail(Status why) {
    failure = std::move(why);
    return false;
  }
  Status differs(Rank peer) const;
};

Status has_left(Rank peer);  // the status for a rank that left before it made this call

}  // namespace pc::shm
