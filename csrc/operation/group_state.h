// What the operations of a group share with it, and may outlive it with.
#pragma once

#include <utility>

#include "failure/group_calls.h"
#include "operation/message_numbers.h"
#include "operation/reentry.h"

namespace pc {

struct GroupState {
  GroupState(const GroupCalls::Parts& parts, uint32_t group, GroupNames names)
      : calls(parts, group, std::move(names)) {}
  GroupCalls calls;
  Reentry reentry;
  MessageNumbers messages;
};

}  // namespace pc
