// send and recv as Work. Messages are ordered only per (peer, tag), so that send_async(next);
// recv(previous) never deadlocks.
#pragma once

#include <memory>
#include <string_view>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// What is known about a message after its end, in addition to its Status.
struct MessageEnd {
  // the message was withdrawn before the peer was informed of it, so its number is free again
  bool unannounced = false;
  MessageId found;  // after a mismatch: the message that the peer sent or expects
  uint64_t found_nbytes = 0;
};

// `id.sequence` counts the messages of this (peer, tag) and direction; the caller keeps the
// counters. `peer` is a world rank. The status of the Work names no rank, because the caller knows
// the peer by its rank in the group. `description` and `how` must outlive the Work; `how` may be
// null.
WorkPtr post_send(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id, ConstBuffer data,
                  std::string_view description, MessageEnd* how = nullptr);
WorkPtr post_recv(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id, Buffer data,
                  MessageEnd* how = nullptr);

}  // namespace pc
