// Makes a user's call with arrays on the host, in a group.
#pragma once

#include "comm/communicator.h"
#include "comm/user_call.h"

namespace pc {

Status run_call(Communicator& group, const UserCall& call, double timeout_s);
// Not available for a sendrecv or for a message that was found.
Result<std::shared_ptr<AsyncWork>> begin_call(Communicator& group, const UserCall& call, AsyncOptions how);

}  // namespace pc
