// State that a group shares with its operations. An operation may outlive the group.
#pragma once

#include <utility>

#include "failure/failure_reports.h"
#include "operation/message_numbers.h"
#include "operation/reentry.h"

namespace pc {

struct GroupState {
  GroupState(const GroupCalls::Parts& parts, uint32_t group, GroupNames names)
      : calls(parts, group, std::move(names)) {}
  // Returns an error if no call can be made now.
  Status usable() {
    PC_TRY(calls.before());
    return reentry.check();
  }
  // Returns an error if a call that has already begun cannot continue. Errors about earlier calls
  // are left for the next new call.
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
