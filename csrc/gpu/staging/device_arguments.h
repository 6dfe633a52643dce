// Checks the arguments of a call of arrays on a GPU: their device, and the rules for arrays of the
// CPU.
#pragma once

#include "comm/communicator.h"
#include "comm/user_call.h"

namespace pc {

// Checks as UserCall::check() does, and that the arrays are on that GPU. Keeps the arrays' device.
Status check_on_gpu(UserCall& call, int device, const Communicator& group);

inline bool is_there(const ConstBuffer& buffer) { return buffer.data != nullptr || buffer.list != nullptr; }

}  // namespace pc
