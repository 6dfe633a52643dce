// What all ranks measured, put together.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"
#include "comm/communicator.h"

namespace pc::bench {

// Of each value, in its place. Collective.
Status allreduce(Communicator& group, std::span<int64_t> values, ReduceOp op);

}  // namespace pc::bench
