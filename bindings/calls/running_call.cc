#include "bindings/calls/running_call.h"

#include "bindings/state/errors.h"

namespace pc {

Communicator* living(const GroupObject& group) {
  const State& state = *group.state;
  if (group.session->forked) {
    PyErr_SetString(
        state.forked_error,
        "this process was forked from one that had called pycollective.init(): a forked child cannot use its "
        "parent's connections. Start processes by spawn, or call pycollective.init() after the fork");
    return nullptr;
  }
  if (group.is_closed) {
    raise_status(state,
                 Status(Code::kNotInitialized,
                        "this group was closed: make it again by group() or split(), on all its ranks"));
    return nullptr;
  }
  if (group.session->runtime != nullptr) return group.communicator;
  raise_status(state, Status(Code::kNotInitialized, kWorldWasShutDown));
  return nullptr;
}

Communicator* usable(const GroupObject& group) {
  if (!group.state->alone.empty() && waits(group)) {
    const unsigned long thread = PyThread_get_thread_ident();
    for (const auto& [its_thread, what] : group.state->alone) {
      if (its_thread != thread) continue;
      refuse(*group.state,
             "a call on a group of " + std::to_string(group.size) + " ranks inside " + what +
                 ", which other ranks do not run: it would wait for them. Make it outside, on all ranks");
      return nullptr;
    }
  }
  return living(group);
}

const HostMap::Entry* process_of(const Session& session, Rank peer) {
  const std::shared_ptr<Runtime>& runtime = session.runtime;
  if (runtime == nullptr || peer < 0) return nullptr;
  const std::vector<HostMap::Entry>& ranks = runtime->hosts().ranks;
  return static_cast<std::size_t>(peer) < ranks.size() ? &ranks[static_cast<std::size_t>(peer)] : nullptr;
}

PyObject* finish(const GroupObject& group, const Status& status, const View* written, PyObject* result) {
  const State& state = *group.state;
  if (status.is_ok() && PyErr_Occurred() == nullptr) [[likely]] {
    return written == nullptr || written->note_write(state) ? Py_NewRef(result) : nullptr;
  }
  // if the status is ok, a signal handler has raised during the call
  if (!status.is_ok()) raise_status(state, status, process_of(*group.session, status.peer()));
  if (written == nullptr || status.code() == Code::kInvalidArgument) return nullptr;
  PyObject *type = nullptr, *value = nullptr,
           *traceback = nullptr;  // the memory may have been written in part
  PyErr_Fetch(&type, &value, &traceback);
  if (!written->note_write(state)) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return nullptr;
}

}  // namespace pc
