// The ranks of a group obtain the id of one NCCL communicator: rank 0 creates it and sends it, or
// the reason why it cannot.
#pragma once

#include "comm/communicator.h"
#include "gpu/nccl/communicator.h"

namespace pc {

// All members call it like any collective. Returns kUnsupported on all of them if rank 0 cannot
// create an id. A negative `timeout_s` selects the group's.
Result<nccl::UniqueId> exchange_unique_id(Communicator& group, const nccl::Api& api, double timeout_s);

}  // namespace pc
