// Gives all ranks of a group the id of one NCCL communicator. Rank 0 creates the id and broadcasts
// it, or broadcasts the reason why it cannot.
#pragma once

#include "comm/communicator.h"
#include "gpu/nccl/communicator.h"

namespace pc {

// All members call it like any collective. Returns kUnsupported on all of them if rank 0 cannot
// create an id. If `timeout_s` is negative, the group's timeout applies.
Result<nccl::UniqueId> exchange_unique_id(Communicator& group, const nccl::Api& api, double timeout_s);

}  // namespace pc
