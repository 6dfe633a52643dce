// Forms a world from ranks that only share a store: each rank publishes its address, rank 0 gathers
// all of them and publishes the list and the selection table, and every rank reads that one key.
// The store gets a handful of requests per rank, and is not needed afterwards.
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
  std::vector<std::string> endpoints;  // by rank, of shm/fd_exchange.h; empty if the rank has none
  HostMap hosts;
  SelectionTable selection = SelectionTable::defaults();
  Profile profile;  // rank 0's
  Check check = Check::kOn;
  std::string transport;  // rank 0's setting
  std::string world;      // a unique name, which separates this world's resources from those of other worlds
};

// `address` and `endpoint` are this rank's. At the deadline the error names the missing ranks.
Result<WorldInfo> rendezvous(Store& store, const RuntimeOptions& options, const std::string& address,
                             const std::string& endpoint, Deadline deadline);

// Removes this rank's entries from a store that outlives the world, so that the next program finds
// nothing stale there. Call it before the other ranks may continue: until then a second process
// that claims this rank is detected as a duplicate.
void leave_rendezvous(Store& store, const RuntimeOptions& options);
// For a failure after rendezvous(): the rank can be claimed again, by another attempt. If
// rendezvous() itself fails, it has done so.
void release_rank(Store& store, const RuntimeOptions& options);

Result<HostMap::Entry> this_process();   // for this rank, without a store
bool more_ranks_than_cores(Rank local);  // considers the affinity mask and the cgroup's cpu.max

}  // namespace pc
