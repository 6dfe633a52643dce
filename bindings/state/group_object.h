// The contents of a Group in Python, and the state that it shares with the other groups of its
// runtime.
#pragma once

#include <Python.h>

#include <functional>
#include <memory>

#include "bindings/state/state.h"
#include "comm/runtime.h"
#include "store/tcp_server.h"

namespace pc {

class GroupHold;

// The state shared by a Runtime object and its groups. `runtime` is null after shutdown. Guarded by
// the GIL. A call that releases the GIL keeps its own reference, so that a shutdown in another
// thread cannot free the memory that it uses.
struct Session {
  std::shared_ptr<Runtime> runtime;
  // Refers to the same runtime even after shutdown() has reset `runtime`. It expires when the last
  // user releases the runtime; shutdown() itself is a user.
  std::weak_ptr<Runtime> alive;
  std::shared_ptr<Store> store;            // null after the world has ended
  std::function<bool()> interrupted;       // runs signal handlers in the main thread
  std::unique_ptr<TcpStoreServer> server;  // on the rank that hosts the store
  bool forked = false;                     // this process is a child of the process that owns the connections
};

inline constexpr const char* kWorldWasShutDown =
    "this group belongs to a world that was shut down: call pycollective.init() again and take the new world";

// Layout of a Group in Python.
struct GroupObject {
  PyObject ob_base;
  State* state;
  std::shared_ptr<Session> session;
  Communicator* communicator;  // valid until the group is closed or session->runtime is null
  Rank rank, size, local_rank, local_size;
  bool is_closed;
  bool is_strict;                   // Communicator::is_strict()
  std::shared_ptr<GroupHold> hold;  // null for the world and for a closed group
};

// Returns a new reference, or nullptr with a Python error set.
PyObject* make_group_object(State* state, const std::shared_ptr<Session>& session,
                            Communicator& communicator);
PyObject* refuse_without_world(const State& state);  // returns nullptr with NotInitialized set
// Returns a new reference to the group that the module's functions act on, or nullptr with
// NotInitialized set.
inline PyObject* current_world(const State& state) {
  if (state.world != nullptr) [[likely]]
    return Py_NewRef(reinterpret_cast<PyObject*>(state.world));
  return refuse_without_world(state);
}
bool is_group(const State& state, PyObject* object);

}  // namespace pc
