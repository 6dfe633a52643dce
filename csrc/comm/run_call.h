// Runs or begins a user's call with arrays on the host.
#pragma once

#include "comm/communicator.h"
#include "comm/user_call.h"

namespace pc {

Status run_call(Communicator& group, const UserCall& call, double timeout_s);
// Returns kInternal for a sendrecv and for the receive of a message that was found.
Result<std::shared_ptr<AsyncWork>> begin_call(Communicator& group, const UserCall& call, AsyncOptions how);

}  // namespace pc
