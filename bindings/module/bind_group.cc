#include "bindings/module/bind_group.h"

#include <iterator>
#include <new>
#include <vector>

#include "bindings/calls/arguments.h"
#include "bindings/calls/call_methods.h"
#include "bindings/calls/calls.h"
#include "bindings/calls/gpu_call.h"
#include "bindings/calls/group_hold.h"
#include "bindings/calls/list_calls.h"
#include "bindings/calls/message_calls.h"
#include "bindings/calls/object_calls.h"
#include "bindings/calls/part_calls.h"
#include "bindings/calls/planned_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/calls/subgroups.h"
#include "bindings/docs/group_docs.h"
#include "bindings/docs/message_docs.h"
#include "bindings/docs/object_docs.h"
#include "bindings/docs/planned_docs.h"
#include "bindings/docs/work_docs.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"
#include "bindings/state/group_object.h"
#include "bindings/state/guarded.h"

namespace pc {
namespace {

using Call = PyObject* (*)(GroupObject&, PyObject* const*, Py_ssize_t, PyObject*);

template <Call call>
PyObject* on_group(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&] { return call(*reinterpret_cast<GroupObject*>(self), args, nargs, kwnames); });
}

template <Call call>
PyObject* on_world(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    // Holds a reference: shutdown() in another thread releases the world while this call waits.
    const Ref world(current_world(*reinterpret_cast<WorldObject*>(self)->state));
    if (!world) return nullptr;
    return call(*reinterpret_cast<GroupObject*>(world.get()), args, nargs, kwnames);
  });
}

PyObject* explain_group(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&] { return explain(*reinterpret_cast<GroupObject*>(self), args, kwargs); });
}

// group_methods() and world_methods() are the same calls, on a group and on the world. The tables
// are never destroyed: CPython keeps pointers into them.
PyMethodDef* group_methods() {
  static std::vector<PyMethodDef>& methods = *[] {
    auto* const all = new std::vector<PyMethodDef>;
    add_group_calls(*all);
    const PyMethodDef others[] = {
        {"resync", fast(on_group<resync>), kFast, docs::kResync},
        {"broadcast_object", fast(on_group<broadcast_object>), kFast, docs::kBroadcastObject},
        {"allgather_object", fast(on_group<allgather_object>), kFast, docs::kAllgatherObject},
        {"gather_object", fast(on_group<gather_object>), kFast, docs::kGatherObject},
        {"scatter_object", fast(on_group<scatter_object>), kFast, docs::kScatterObject},
        {"send_object", fast(on_group<send_object>), kFast, docs::kSendObject},
        {"recv_object", fast(on_group<recv_object>), kFast, docs::kRecvObject},
        {"group", fast(on_group<subgroup>), kFast, docs::kGroupOf},
        {"split", fast(on_group<split>), kFast, docs::kSplit},
        {"close", fast(on_group<close_group>), kFast, docs::kClose},
        {"_join_gpus", fast(on_group<join_gpus>), kFast, docs::kJoinGpus},
        {"_can_split_gpus", fast(on_group<can_split_gpus>), kFast, docs::kCanSplitGpus},
        {"_split_gpus", fast(on_group<split_gpus>), kFast, docs::kSplitGpus},
        {"_make", fast(on_group<make_group>), kFast, docs::kMake},
        {"_reserve_group_ids", fast(on_group<reserve_group_ids>), kFast, docs::kReserveGroupIds},
        {"_quit", fast(on_group<quit_group>), kFast, docs::kQuit},
        {"_run", fast(on_group<run_as_it_is>), kFast, docs::kRun},
        {"_begin", fast(on_group<begin_as_it_is>), kFast, docs::kBegin},
        {"_run_list", fast(on_group<run_list>), kFast, docs::kRunList},
        {"_begin_list", fast(on_group<begin_list>), kFast, docs::kBeginList},
        {"_plan_lists", fast(on_group<plan_lists>), kFast, docs::kPlanLists},
        {"_plan_staged", fast(on_group<plan_staged>), kFast, docs::kPlanStaged},
        {"_send", fast(on_group<send_as_it_is>), kFast, docs::kSendAsItIs},
        {"_recv", fast(on_group<recv_as_it_is>), kFast, docs::kRecvAsItIs},
        {"_find", fast(on_group<find_message>), kFast, docs::kFind},
        {"_receive", fast(on_group<receive_found>), kFast, docs::kReceive},
        {"explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(explain_group)),
         METH_VARARGS | METH_KEYWORDS, docs::kExplain},
        {},
    };
    all->insert(all->end(), std::begin(others), std::end(others));
    return all;
  }();
  return methods.data();
}
PyObject* world_reduce(PyObject*, PyObject*) {
  return PyUnicode_FromString("_world");
}  // pickle finds the world object by this name

PyMethodDef* world_methods() {
  static std::vector<PyMethodDef>& methods = *[] {
    auto* const all = new std::vector<PyMethodDef>;
    add_world_calls(*all);
    const PyMethodDef others[] = {
        {"resync", fast(on_world<resync>), kFast, docs::kResync},
        {"broadcast_object", fast(on_world<broadcast_object>), kFast, docs::kBroadcastObject},
        {"allgather_object", fast(on_world<allgather_object>), kFast, docs::kAllgatherObject},
        {"gather_object", fast(on_world<gather_object>), kFast, docs::kGatherObject},
        {"scatter_object", fast(on_world<scatter_object>), kFast, docs::kScatterObject},
        {"send_object", fast(on_world<send_object>), kFast, docs::kSendObject},
        {"recv_object", fast(on_world<recv_object>), kFast, docs::kRecvObject},
        {"group", fast(on_world<subgroup>), kFast, docs::kGroupOf},
        {"__reduce__", world_reduce, METH_NOARGS, nullptr},
        {},
    };
    all->insert(all->end(), std::begin(others), std::end(others));
    return all;
  }();
  return methods.data();
}

void group_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<GroupObject*>(self)->hold.~shared_ptr();
  reinterpret_cast<GroupObject*>(self)->session.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

// Returns a tuple with one entry per rank of the group.
template <class Entry>
PyObject* per_rank(const GroupObject& group, Entry&& entry) {
  const Communicator* communicator = living(group);
  if (communicator == nullptr) return nullptr;
  PyObject* tuple = PyTuple_New(group.size);
  for (Rank rank = 0; tuple != nullptr && rank < group.size; ++rank) {
    PyObject* value = entry(communicator->world_ranks()[static_cast<std::size_t>(rank)]);
    if (value == nullptr) return Py_DECREF(tuple), nullptr;
    PyTuple_SET_ITEM(tuple, rank, value);
  }
  return tuple;
}
PyObject* get_ranks(PyObject* self, void*) {
  return guarded([&] {
    return per_rank(*reinterpret_cast<GroupObject*>(self), [](Rank rank) { return PyLong_FromLong(rank); });
  });
}
PyObject* get_is_strict(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<GroupObject*>(self)->is_strict);
}

// Returns, for each rank, the first rank of the world on the same host.
PyObject* get_hosts(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const GroupObject& group = *reinterpret_cast<GroupObject*>(self);
    if (living(group) == nullptr) return nullptr;
    const std::vector<HostMap::Entry>& ranks = group.session->runtime->hosts().ranks;
    return per_rank(group, [&](Rank rank) {
      const std::string& key = ranks[static_cast<std::size_t>(rank)].host_key;
      long first = 0;
      while (ranks[static_cast<std::size_t>(first)].host_key != key) ++first;
      return PyLong_FromLong(first);
    });
  });
}

template <Rank GroupObject::*member>
PyObject* get_rank(PyObject* self, void*) {
  return PyLong_FromLong(reinterpret_cast<GroupObject*>(self)->*member);
}

PyObject* group_repr(PyObject* self) {
  const GroupObject& group = *reinterpret_cast<GroupObject*>(self);
  return PyUnicode_FromFormat("<pycollective.Group rank %d of %d%s>", group.rank, group.size,
                              group.is_closed                     ? ", closed"
                              : group.session->runtime == nullptr ? ", shut down"
                                                                  : "");
}

PyTypeObject* make_group_type(PyObject* module) {
  static PyGetSetDef members[] = {
      {"rank", get_rank<&GroupObject::rank>, nullptr, "This process's number in the group, from 0.", nullptr},
      {"size", get_rank<&GroupObject::size>, nullptr, "How many ranks the group has.", nullptr},
      {"local_rank", get_rank<&GroupObject::local_rank>, nullptr,
       "This process's number among those on its host.", nullptr},
      {"local_size", get_rank<&GroupObject::local_size>, nullptr, "How many of the ranks are on this host.",
       nullptr},
      {"ranks", get_ranks, nullptr, "The members as ranks of the world: a tuple, in the order of the group.",
       nullptr},
      {"_hosts", get_hosts, nullptr, nullptr, nullptr},
      {"_is_strict", get_is_strict, nullptr, nullptr, nullptr},
      {},
  };
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(group_dealloc)},
      {Py_tp_methods, group_methods()},
      {Py_tp_getset, members},
      {Py_tp_repr, reinterpret_cast<void*>(group_repr)},
      {Py_tp_doc, const_cast<char*>(docs::kGroup)},
      {0, nullptr},
  };
  PyType_Spec spec = {"pycollective.Group", static_cast<int>(sizeof(GroupObject)), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

PyObject* make_world_object(PyObject* module, State* state) {
  PyType_Slot slots[] = {{Py_tp_methods, world_methods()}, {0, nullptr}};
  PyType_Spec spec = {"pycollective._core.World", static_cast<int>(sizeof(WorldObject)), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (type == nullptr) return nullptr;
  PyObject* self = reinterpret_cast<PyTypeObject*>(type)->tp_alloc(reinterpret_cast<PyTypeObject*>(type), 0);
  Py_DECREF(type);
  if (self != nullptr) reinterpret_cast<WorldObject*>(self)->state = state;
  return self;
}

}  // namespace

bool add_group(PyObject* module, State* state) {
  state->group_type = make_group_type(module);
  if (state->group_type == nullptr) return false;
  if (PyModule_AddObjectRef(module, "Group", reinterpret_cast<PyObject*>(state->group_type)) != 0)
    return false;
  PyObject* world = make_world_object(module, state);
  PyObject* module_name = PyUnicode_InternFromString("pycollective");
  if (world == nullptr || module_name == nullptr || PyModule_AddObjectRef(module, "_world", world) != 0)
    return false;
  for (PyMethodDef* method = world_methods(); method->ml_name[0] != '_'; ++method) {
    PyObject* function = PyCFunction_NewEx(method, world, module_name);
    if (function == nullptr) return false;
    const int failed = PyModule_AddObjectRef(module, method->ml_name, function);
    Py_DECREF(function);
    if (failed != 0) return false;
  }
  Py_DECREF(module_name);
  Py_DECREF(world);
  return true;
}

}  // namespace pc
