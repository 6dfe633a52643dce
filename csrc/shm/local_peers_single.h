// The memory of a rank that shares it with nobody, for what works on shared memory whatever the number of ranks.
#pragma once

#include <memory>

#include "shm/local_peers.h"

namespace pc {

Result<std::unique_ptr<LocalPeers>> make_single_local_peers(Rank self);

}  // namespace pc
