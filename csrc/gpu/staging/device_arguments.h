// The arguments of a call of arrays on a GPU: where they lie, and otherwise what is asked of arrays of the CPU.
#pragma once

#include "comm/communicator.h"
#include "comm/user_call.h"

namespace pc {

// As UserCall::check(), and its arrays lie on that GPU, before and afterwards.
Status check_on_gpu(UserCall& call, int device, const Communicator& group);

inline bool is_there(const ConstBuffer& buffer) { return buffer.data != nullptr || buffer.list != nullptr; }

}  // namespace pc
