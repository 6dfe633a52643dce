// send and recv as Work. Ordered only per (peer, tag), so that send_async(next); recv(previous) never deadlocks.
#pragma once

#include <memory>
#include <string_view>

#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// What the end of a message leaves to know, besides its Status.
struct MessageEnd {
  bool unannounced = false;  // it was withdrawn before the peer had been told of it: its number is free again
  MessageId found;           // of a mismatch: what the peer sent or expects
  uint64_t found_nbytes = 0;
};

// `id.sequence` counts messages of this (peer, tag) and direction; the caller keeps the counters. `peer` is a world rank;
// how the Work ends names nobody, because the caller knows the peer by its rank in the group. `description` and
// `how`, which may be null, outlive the Work.
WorkPtr post_send(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id, ConstBuffer data,
                  std::string_view description, MessageEnd* how = nullptr);
WorkPtr post_recv(Transport& transport, Reactor& reactor, Rank peer, const MessageId& id, Buffer data,
                  MessageEnd* how = nullptr);

}  // namespace pc
