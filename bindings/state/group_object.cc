#include "bindings/state/group_object.h"

#include <new>

#include "bindings/state/errors.h"

namespace pc {

PyObject* make_group_object(State* state, const std::shared_ptr<Session>& session,
                            Communicator& communicator) {
  PyObject* self = state->group_type->tp_alloc(state->group_type, 0);
  if (self == nullptr) return nullptr;
  GroupObject& group = *reinterpret_cast<GroupObject*>(self);
  new (&group.session) std::shared_ptr<Session>(session);
  new (&group.hold) std::shared_ptr<GroupHold>();
  group.is_closed = false;
  group.state = state;
  group.communicator = &communicator;
  group.rank = communicator.rank();
  group.size = communicator.size();
  group.is_strict = communicator.is_strict();
  const std::vector<HostMap::Entry>& ranks = session->runtime->hosts().ranks;
  const auto host_of = [&](Rank rank) -> const std::string& {
    return ranks[static_cast<std::size_t>(communicator.world_ranks()[static_cast<std::size_t>(rank)])]
        .host_key;
  };
  group.local_rank = group.local_size = 0;
  for (Rank rank = 0; rank < group.size; ++rank) {
    if (host_of(rank) != host_of(group.rank)) continue;
    ++group.local_size;
    if (rank < group.rank) ++group.local_rank;
  }
  return self;
}

PyObject* refuse_without_world(const State& state) {
  return raise_status(state,
                      Status(Code::kNotInitialized, "there is no world yet: call pycollective.init() first"));
}

bool is_group(const State& state, PyObject* object) { return Py_TYPE(object) == state.group_type; }

}  // namespace pc
