// Local peers of a rank that shares memory with no other rank, for code that runs with any number
// of ranks.
#pragma once

#include <memory>

#include "shm/local_peers.h"

namespace pc {

Result<std::unique_ptr<LocalPeers>> make_single_local_peers(Rank self);

}  // namespace pc
