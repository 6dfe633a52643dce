// Converts NCCL's return codes into errors with a message.
#pragma once

#include <string_view>

#include "base/status.h"
#include "gpu/nccl/api.h"

namespace pc::nccl {

// Returns an error such as "ncclAllReduce: ncclSystemError (2), unhandled system error; NCCL's last
// error: ...". `comm` may be null.
Status call_error(const Api& api, CommHandle comm, std::string_view call, ReturnCode code);

}  // namespace pc::nccl
