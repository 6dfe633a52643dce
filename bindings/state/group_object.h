// What a Group in Python holds, and what it shares with the other groups of its runtime.
#pragma once

#include <Python.h>

#include <functional>
#include <memory>

#include "bindings/state/state.h"
#include "comm/runtime.h"
#include "store/tcp_server.h"

namespace pc {

class GroupHold;

// What a Runtime object and its groups share. `runtime` is null after shutdown. Guarded by the GIL; a call that releases
// the GIL keeps a reference of its own, so that a shutdown elsewhere cannot take the memory away under it.
struct Session {
  std::shared_ptr<Runtime> runtime;
  std::weak_ptr<Runtime> alive;       // the same, until its last user lets it go: shutdown() is one of them
  std::shared_ptr<Store> store;       // null: the world has ended
  std::function<bool()> interrupted;  // runs signal handlers in the main thread
  std::unique_ptr<TcpStoreServer> server;  // on the rank that hosts it
  bool forked = false;  // this process is a child of the one that the connections belong to
};

inline constexpr const char* kWorldWasShutDown =
    "this group belongs to a world that was shut down: call pycollective.init() again and take the new world";

// Layout of a Group in Python.
struct GroupObject {
  PyObject ob_base;
  State* state;
  std::shared_ptr<Session> session;
  Communicator* communicator;  // valid while session->runtime is, and the group is not closed
  Rank rank, size, local_rank, local_size;
  bool is_closed;
  bool is_strict;                   // Communicator::is_strict()
  std::shared_ptr<GroupHold> hold;  // null: of the world, or the group is closed
};

// New reference, or nullptr with a Python error set.
PyObject* make_group_object(State* state, const std::shared_ptr<Session>& session,
                            Communicator& communicator);
PyObject* refuse_without_world(const State& state);  // nullptr, with NotInitialized set
// The group that the functions of the module act on: a new reference, or nullptr with NotInitialized set.
inline PyObject* current_world(const State& state) {
  if (state.world != nullptr) [[likely]]
    return Py_NewRef(reinterpret_cast<PyObject*>(state.world));
  return refuse_without_world(state);
}
bool is_group(const State& state, PyObject* object);

}  // namespace pc
