// How the ranks of a group come to one communicator of NCCL's: rank 0 makes its id and tells it, or why there is none.
#pragma once

#include "comm/communicator.h"
#include "gpu/nccl/communicator.h"

namespace pc {

// All members call it, as they would call any collective. kUnsupported, on all of them: rank 0 cannot make an id.
// `timeout_s`: negative for the group's.
Result<nccl::UniqueId> exchange_unique_id(Communicator& group, const nccl::Api& api, double timeout_s);

}  // namespace pc
