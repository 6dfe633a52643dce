// Runs a call with checked arguments without the GIL, and keeps the runtime alive meanwhile.
#pragma once

#include "bindings/arrays/view.h"
#include "bindings/calls/group_hold.h"
#include "bindings/state/group_object.h"
#include "bindings/state/without_gil.h"

namespace pc {

// Returns nullptr with a Python error set if the group is closed, its world has ended, or it
// belongs to the parent process. The result is valid until Python code runs.
Communicator* living(const GroupObject& group);
// Like living(), but also refuses calls in a thread that runs code which other ranks do not run.
Communicator* usable(const GroupObject& group);

// In a world of one rank no collective waits and nothing else runs during one. Messages of a rank
// to itself may wait.
inline bool waits(const GroupObject& group) { return group.size > 1; }

// The call site for errors and the flight recorder. Null in a world of one rank, where a collective
// can neither fail nor wait.
inline const char* site_of(const GroupObject& group) {
  return waits(group) ? group.state->sites.here() : nullptr;
}

// Runs `call(communicator)` and keeps the runtime alive, because signal handlers and other threads
// may shut it down meanwhile. Take views before this, since taking them may run Python code. A call
// that cannot wait keeps the GIL: to release and retake it costs more than the call.
template <class Call>
Status run(const GroupObject& group, Call&& call, bool may_wait) {
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return Status(Code::kInvalidArgument, {});  // the arrays were not touched
  const Session& session = *group.session;
  std::shared_ptr<Runtime> runtime = session.runtime;
  if (!may_wait) return call(*communicator);
  const std::shared_ptr<GroupHold> hold = group.hold;  // keeps the group if another thread closes it
  Status status;
  {
    const WithoutGil released;
    status = call(*communicator);
  }
  if (session.runtime == nullptr) let_go(std::move(runtime));
  return status;
}

template <class Call>
Status run(const GroupObject& group, Call&& call) {
  return run(group, std::forward<Call>(call), waits(group));
}

// Returns the process of `peer` for raise_status(); may be null.
const HostMap::Entry* process_of(const Session& session, Rank peer);

// Called at the end of every call. Returns a new reference to `result`, or nullptr with the Python
// error of `status` set. `written` is the view that the call writes, or null.
PyObject* finish(const GroupObject& group, const Status& status, const View* written, PyObject* result);

}  // namespace pc
