// A user's call of arrays on the host, made by a group.
#pragma once

#include "comm/communicator.h"
#include "comm/user_call.h"

namespace pc {

Status run_call(Communicator& group, const UserCall& call, double timeout_s);
// There is none for a sendrecv, and none for a message that was found.
Result<std::shared_ptr<AsyncWork>> begin_call(Communicator& group, const UserCall& call, AsyncOptions how);

}  // namespace pc
