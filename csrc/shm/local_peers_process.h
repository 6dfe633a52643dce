// Local peers that are processes. They share memory by the descriptors that they have exchanged
// (fd_exchange.h).
#pragma once

#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/types.h"
#include "shm/event_fd.h"
#include "shm/local_peers.h"
#include "shm/segment.h"

namespace pc {

// What a rank shares with the other ranks.
struct SharedPart {
  OwnSegment memory;
  EventFd notifier;
  static Result<SharedPart> create();
};

// What a rank received from another rank.
struct PeerPart {
  Rank rank = -1;
  PeerSegment memory;
  EventFd notifier;
  // Returns kMismatch if the descriptors are unsuitable.
  static Result<PeerPart> adopt(Rank rank, Fd memory, Fd notifier);
};

std::unique_ptr<LocalPeers> make_process_local_peers(Rank self, SharedPart own, std::vector<PeerPart> peers);

}  // namespace pc
