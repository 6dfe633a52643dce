// The state of one call in a group's shared memory, shared by all algorithms: the caller's arrays,
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

// A method that returns false, null or nullopt has recorded in group.awaited() what it waits for,
// or has set `failure`. The run reuses the object for later calls. Thread-safety: that of the run.
struct Exchange {
  Host& host;
  Group& group;
  const Request& request;
  const Launch& launch;
  // the exchange with other hosts, if any; not owned, outlives the call
  InterDomainExchange* inter_domain = nullptr;
  Status failure = {};
  bool more_to_do = false;  // progress is possible without waiting
  Rank next_peer = 0;       // the rank with which visit_peers() continues
  std::size_t kept = 0;     // number of bytes that keep_own_part() has copied
  Traffic traffic = {};
  CallArrays arrays = {};
  std::vector<const std::byte*> sources = {};  // by rank; see contributions()

  // Prepares for the call that `request` and `launch` now describe.
  void prepare(const Division& division, InterDomainExchange* others);
  bool join();
  void announce() { group.announce(launch.sequence, fingerprint_of(launch.digest)); }
  // Returns whether `peer` has announced this call. If it has announced a different call under the
  // same number, sets `failure` and returns false.
  bool compare(Rank peer) {
    const Group::Seen seen = group.look(peer);
    return seen == Group::Seen::kSame || (seen == Group::Seen::kOther && fail(differs(peer)));
  }
  // Calls `visit(peer)` for each other rank. Returns true when all have been visited. If `visit`
  // returns false, so does this, and the next visit_peers() continues with that rank.
  template <class Visit>
  bool visit_peers(Visit&& visit) {
    for (; next_peer < launch.size; ++next_peer) {
      if (next_peer != launch.rank && !visit(next_peer)) return false;
    }
    return true;
  }
  // Records that all members have announced the call, if the call needs all of them. Call it when
  // visit_peers() has returned true.
  void note_seen();

  // For a small call. allocate() returns the position of this rank's message in its ring. message()
  // returns the data that `peer`, which has announced the call, has for this rank.
  std::optional<uint64_t> allocate(std::size_t nbytes);
  const std::byte* message(Rank peer);
  // Returns the operands to combine, in rank order: `message_of(peer)` for each contributor, and
  // null for this rank, which contributes its input. Returns an empty span if one of the messages
  // has not arrived yet.
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
  // Copies the next piece of the data that this rank has for itself from the input to the output.
  // Returns false if nothing is left to copy.
  bool keep_own_part();
  // Returns true in an exchange between hosts in which every rank has a part of the array. This
  // rank then also represents the parts of ranks on other hosts.
  bool is_of_parts() const { return inter_domain != nullptr && has_parts(request.collective); }
  bool fail(Status why) {
    failure = std::move(why);
    return false;
  }
  Status differs(Rank peer) const;
};

Status has_left(Rank peer);  // the status for a rank that left before it made this call

}  // namespace pc::shm
