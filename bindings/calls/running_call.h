// Between a call's arguments and its result: without the GIL, with the runtime kept alive.
#pragma once

#include "bindings/arrays/view.h"
#include "bindings/calls/group_hold.h"
#include "bindings/state/group_object.h"
#include "bindings/state/without_gil.h"

namespace pc {

// nullptr with a Python error set if the group's world has ended, or is the parent's. The answer holds until Python code runs.
Communicator* living(const GroupObject& group);
// The same if calls on this group cannot be made: also not where this thread runs what the other ranks do not.
Communicator* usable(const GroupObject& group);

// Alone in the world no collective waits, and nothing else runs during one. Messages of a rank to itself may.
inline bool waits(const GroupObject& group) { return group.size > 1; }

// For errors and the flight recorder. Alone in the world a collective can neither fail nor wait, so it needs no line.
inline const char* site_of(const GroupObject& group) {
  return waits(group) ? group.state->sites.here() : nullptr;
}

// Runs `call(communicator)`, which keeps the runtime alive: signal handlers and other threads may shut it down meanwhile.
// Views come first, since taking them may run Python code. A call that cannot wait keeps the GIL: giving it away and taking
// it back costs more than the call.
template <class Call>
Status run(const GroupObject& group, Call&& call, bool may_wait) {
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return Status(Code::kInvalidArgument, {});  // nothing was touched
  const Session& session = *group.session;
  std::shared_ptr<Runtime> runtime = session.runtime;
  if (!may_wait) return call(*communicator);
  const std::shared_ptr<GroupHold> hold = group.hold;  // close() in another thread
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

// For raise_status(): where `peer` runs; may be null.
const HostMap::Entry* process_of(const Session& session, Rank peer);

// The end of every call: raises, or hands `result` back. `written`: what the call writes, if anything.
PyObject* finish(const GroupObject& group, const Status& status, const View* written, PyObject* result);

}  // namespace pc
