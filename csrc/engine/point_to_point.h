// send and recv as Work. Ordered only per (peer, tag), so that send_async(next); recv(previous) never deadlocks.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// `id.sequence` counts messages of this (peer, tag) and direction; the caller keeps the counters. `peer` is a world rank;
// how the Work ends names nobody, because the caller knows the peer by its rank in the group.
std::unique_ptr<Work> post_send(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id,
                                ConstBuffer data);
std::unique_ptr<Work> post_recv(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id,
                                Buffer data);

}  // namespace pc
