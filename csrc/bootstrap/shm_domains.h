// Which ranks share memory with which. Names of hosts only suggest it: containers, user accounts and limits decide. So the lowest
// rank of each host gathers the others (shm/fd_exchange.h), and rank 0 publishes what came of it everywhere:
// every rank knows it of every other.
#pragma once

#include <memory>

#include "base/waiter.h"
#include "bootstrap/rendezvous.h"
#include "shm/fd_exchange.h"
#include "shm/local_peers.h"

namespace pc {

// After rendezvous(), before anybody leaves: fills in `domain` and `why_alone` of every rank. Null: this rank
// shares memory with nobody.
// `listener` is this rank's, whose endpoint rendezvous() has published; `why_no_place` where it has none. A
// rank that cannot share memory is no error unless rank 0 asked for "shm": then it is kUnsupported, on every
// rank.
Result<std::unique_ptr<LocalPeers>> find_local_peers(Store& store, const RuntimeOptions& options,
                                                     const Result<FdExchangeListener>& listener,
                                                     WorldInfo& world_info, const WaitContext& context);

}  // namespace pc
