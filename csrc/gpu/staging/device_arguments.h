// Checks the arguments of a call with arrays on a GPU.
#pragma once

#include "comm/communicator.h"
#include "comm/user_call.h"

namespace pc {

// Checks what UserCall::check() checks, and that the arrays are on GPU `device`. Does not change
// the `device` of the arrays.
Status check_on_gpu(UserCall& call, int device, const Communicator& group);

inline bool is_there(const ConstBuffer& buffer) { return buffer.data != nullptr || buffer.list != nullptr; }

}  // namespace pc
