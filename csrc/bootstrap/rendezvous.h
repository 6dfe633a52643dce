// Forms a world from ranks that share nothing but a store. Each rank publishes its address. Rank 0
// gathers all addresses and publishes the list together with the selection table under one key,
// which every rank reads. Each rank makes only a handful of requests to the store during
// rendezvous, and none later.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/world.h"
#include "store/store.h"
#include "tuning/profile.h"
#include "tuning/selection.h"

namespace pc {

struct WorldInfo {
  std::vector<std::string> addresses;  // by rank
  // by rank: the socket for shm/fd_exchange.h; empty if the rank has none
  std::vector<std::string> endpoints;
  HostMap hosts;
  SelectionTable selection = SelectionTable::defaults();
  Profile profile;  // rank 0's tuning profile
  Check check = Check::kOn;
  std::string transport;  // rank 0's RuntimeOptions::transport
  std::string world;      // a unique name, which separates this world's resources from those of other worlds
};

// Publishes `address` and `endpoint` as those of this rank, and waits for all ranks. If the
// deadline passes, the error names the missing ranks.
Result<WorldInfo> rendezvous(Store& store, const RuntimeOptions& options, const std::string& address,
                             const std::string& endpoint, Deadline deadline);

// Removes this rank's entries from a store that outlives the world, so that the next program finds
// no stale entries. Call it at shutdown, before this rank waits for the other ranks. Until it is
// called, a second process that claims this rank is detected as a duplicate.
void leave_rendezvous(Store& store, const RuntimeOptions& options);
// Releases the claim on this rank, so that another attempt can claim it. Call it after a failure
// that follows rendezvous(). If rendezvous() itself fails, it has already released the claim.
void release_rank(Store& store, const RuntimeOptions& options);

Result<HostMap::Entry> this_process();  // describes this process without using a store
// Returns true if `local` ranks exceed the cores that the affinity mask and the cgroup's cpu.max
// allow.
bool more_ranks_than_cores(Rank local);

}  // namespace pc
