// Messages through memory that ranks of one host share, and through another transport to all other ranks.
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
  CoreWatch* core = nullptr;  // of its waits; may be null, else outlives the transport
};
// `inner` connects every pair, has the control sockets, and says when a local peer ends. It is not connected
// yet. The other two are not owned; they outlive the transport, which polls the wakeup for all who use it.
Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options,
                                                      std::unique_ptr<Transport> inner,
                                                      LocalPeers& local_peers, ShmWakeup& wakeup);

}  // namespace pc
