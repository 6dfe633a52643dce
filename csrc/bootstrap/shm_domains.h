// Finds out which ranks share memory. Host names are only a hint: containers, user accounts and
// limits decide. So the lowest rank of each host gathers the local ranks (shm/fd_exchange.h), and
// rank 0 publishes the results of all hosts: every rank knows the domain of every rank.
#pragma once

#include <memory>

#include "base/waiter.h"
#include "bootstrap/rendezvous.h"
#include "shm/fd_exchange.h"
#include "shm/local_peers.h"

namespace pc {

// Call it after rendezvous(), before any rank leaves. Fills in `domain` and `why_alone` of every
// rank. Returns null if this rank shares memory with no other rank. `listener` is this rank's
// listener, with the endpoint that rendezvous() has published, or the reason why it has none. A
// rank that cannot share memory is an error only if rank 0 requested "shm": then every rank returns
// kUnsupported.
Result<std::unique_ptr<LocalPeers>> find_local_peers(Store& store, const RuntimeOptions& options,
                                                     const Result<FdExchangeListener>& listener,
                                                     WorldInfo& world_info, const WaitContext& context);

}  // namespace pc
