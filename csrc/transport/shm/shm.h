// A transport that sends messages through memory that ranks of one host share, and through another
// transport to all other ranks.
#pragma once

#include <memory>

#include "transport/shm/wakeup.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace pc {

struct ShmOptions {
  Rank rank = 0, size = 1;
  uint32_t epoch = 0;
  bool oversubscribed = false;  // more ranks than cores share the host
  LinkLimits limits = {};
  CoreWatch* core = nullptr;  // for its waits; may be null, else it outlives the transport
};
// `inner` connects every pair of ranks, has the control sockets, and reports when a local peer
// ends. It must not be connected yet. `local_peers` and `wakeup` are not owned and outlive the
// transport, which polls `wakeup` for all users of `wakeup`.
Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options,
                                                      std::unique_ptr<Transport> inner,
                                                      LocalPeers& local_peers, ShmWakeup& wakeup);

}  // namespace pc
