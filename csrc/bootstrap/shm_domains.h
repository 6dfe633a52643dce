// Determines which ranks share memory. Equal host names are only a hint, because containers, user
// accounts and limits can prevent sharing. So the lowest rank of each host exchanges descriptors
// with the other ranks of its host (shm/fd_exchange.h). Rank 0 then publishes the results of all
// hosts, so that every rank knows the domain of every rank.
#pragma once

#include <memory>

#include "base/waiter.h"
#include "bootstrap/rendezvous.h"
#include "shm/fd_exchange.h"
#include "shm/local_peers.h"

namespace pc {

// Call it after rendezvous(), before any rank leaves. Sets `domain` and `why_alone` of every rank
// in `world_info`. Returns null if this rank shares memory with no other rank. `listener` is the
// listener of which rendezvous() has published the endpoint, or the reason why this rank has none.
// If some rank cannot share memory although rank 0 requested "shm", every rank returns
// kUnsupported.
Result<std::unique_ptr<LocalPeers>> find_local_peers(Store& store, const RuntimeOptions& options,
                                                     const Result<FdExchangeListener>& listener,
                                                     WorldInfo& world_info, const WaitContext& context);

}  // namespace pc
