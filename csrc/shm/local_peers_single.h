// The memory of a rank that shares it with no other rank, for code that needs shared memory for any
// number of ranks.
#pragma once

#include <memory>

#include "shm/local_peers.h"

namespace pc {

Result<std::unique_ptr<LocalPeers>> make_single_local_peers(Rank self);

}  // namespace pc
