// The memory of a rank that shares it with nobody, for what works on shared memory whatever the number of ranks.
#pragma once

#include <memory>

#include "shm/neighbours.h"

namespace pc {

Result<std::unique_ptr<Neighbours>> make_lone_neighbours(Rank self);

}  // namespace pc
