// Local peers that are processes: made of the descriptors that they handed round (fd_exchange.h).
#pragma once

#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/types.h"
#include "shm/event_fd.h"
#include "shm/local_peers.h"
#include "shm/segment.h"

namespace pc {

// What a rank gives away, and keeps.
struct SharedPart {
  OwnSegment memory;
  EventFd notifier;
  static Result<SharedPart> create();
};

// What it got from another.
struct PeerPart {
  Rank rank = -1;
  PeerSegment memory;
  EventFd notifier;
  static Result<PeerPart> adopt(Rank rank, Fd memory,
                                Fd notifier);  // kMismatch: they are not what they should be
};

std::unique_ptr<LocalPeers> make_process_local_peers(Rank self, SharedPart own, std::vector<PeerPart> peers);

}  // namespace pc
