// How ranks that only share a store become a world: each publishes where it is, rank 0 gathers all and publishes
// the list and the selection table, everybody reads that one key. The store sees a handful of requests per rank, and
// is not needed again.
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
  std::vector<std::string> endpoints;  // by rank, of shm/fd_exchange.h; empty where there is none
  HostMap hosts;
  SelectionTable selection = SelectionTable::defaults();
  Profile profile;  // rank 0's
  Check check = Check::kOn;
  std::string transport;  // rank 0's word
  std::string world;      // a name of its own, for what must not be mixed up with that of other worlds
};

// `address` and `endpoint` are this rank's. At the deadline the error names who never came.
Result<WorldInfo> rendezvous(Store& store, const RuntimeOptions& options, const std::string& address,
                             const std::string& endpoint, Deadline deadline);

// Takes this rank's part out of a store that outlives the world, so that the next program finds nothing old there. Before the
// others are let go: until then a process that claims this rank is a twin.
void leave_rendezvous(Store& store, const RuntimeOptions& options);
// After a failure behind rendezvous(): the rank may be claimed again, by another try. rendezvous() itself has
// done so if it fails.
void release_rank(Store& store, const RuntimeOptions& options);

Result<HostMap::Entry> this_process();   // of this rank, without a store
bool more_ranks_than_cores(Rank local);  // by the affinity mask and the cgroup's cpu.max

}  // namespace pc
