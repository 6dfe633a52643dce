// What the operations of a group share with it, and may outlive it with.
#pragma once

#include <utility>

#include "failure/failure_reports.h"
#include "operation/message_numbers.h"
#include "operation/reentry.h"

namespace pc {

struct GroupState {
  GroupState(const GroupCalls::Parts& parts, uint32_t group, GroupNames names)
      : calls(parts, group, std::move(names)) {}
  // Why no call can be made now.
  Status usable() {
    PC_TRY(calls.before());
    return reentry.check();
  }
  // Why one that was let in cannot go on. What has come up about earlier calls is for who makes a new one.
  Status goes_on() const {
    PC_TRY(calls.alive());
    return reentry.check();
  }

  GroupCalls calls;
  FailureReports reports{calls};
  Reentry reentry;
  MessageNumbers messages;
};

}  // namespace pc
