#include "bindings/calls/subgroups.h"

#include <vector>

#include "bindings/calls/arguments.h"
#include "bindings/calls/group_hold.h"
#include "bindings/calls/in_python.h"
#include "bindings/calls/running_call.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"
#include "comm/devices.h"

namespace pc {

PyObject* make_group(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject*) {
  if (usable(group) == nullptr) return nullptr;
  const Ref ranks(nargs == 2 ? PySequence_Fast(args[1], "world_ranks must be a list of integers") : nullptr);
  if (!ranks) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "_make(id, world_ranks)");
    return nullptr;
  }
  int64_t id = 0;
  if (!to_integer(*group.state, "_make", "id", args[0], UINT32_MAX, &id)) return nullptr;
  std::vector<Rank> world_ranks;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(ranks.get()); ++i) {
    int64_t rank = 0;
    PyObject* item = PySequence_Fast_GET_ITEM(ranks.get(), i);
    if (!to_integer(*group.state, "group", "ranks", item, INT32_MAX, &rank)) return nullptr;
    world_ranks.push_back(static_cast<Rank>(rank));
  }
  const Result<Communicator*> made =
      group.session->runtime->make_group(static_cast<uint32_t>(id), std::move(world_ranks));
  if (!made.is_ok()) return raise_status(*group.state, made.status());
  Communicator& communicator = *made.value();
  auto hold = std::make_shared<GroupHold>(group.session, communicator);
  PyObject* object = make_group_object(group.state, group.session, communicator);
  if (object != nullptr) reinterpret_cast<GroupObject*>(object)->hold = std::move(hold);
  return object;
}

PyObject* close_group(GroupObject& group, PyObject* const*, Py_ssize_t nargs, PyObject*) {
  if (nargs != 0) return PyErr_Format(PyExc_TypeError, "close() takes no arguments");
  if (group.is_closed || group.session->runtime == nullptr || group.session->forked)
    return Py_NewRef(Py_None);
  if (group.hold == nullptr)
    return refuse(*group.state, "close: this group is the world, which pycollective.shutdown() ends"),
           nullptr;
  const std::shared_ptr<Runtime> runtime = group.session->runtime;
  const std::shared_ptr<GroupHold> hold =
      std::move(group.hold);  // released when no call in another thread holds it
  group.is_closed = true;
  {
    const WithoutGil released;
    const std::shared_ptr<Devices> devices = runtime->devices().made();
    // a group that the devices know is ended by shutdown(), in an order common to all ranks
    if (devices == nullptr || !devices->knows(*group.communicator))
      group.communicator->abort(Status(Code::kNotInitialized, "this group was closed"));
  }
  return Py_NewRef(Py_None);
}

PyObject* reserve_group_ids(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject*) {
  if (usable(group) == nullptr) return nullptr;
  if (nargs != 1) {
    PyErr_SetString(PyExc_TypeError, "_reserve_group_ids(count)");
    return nullptr;
  }
  int64_t count = 0;
  if (!to_integer(*group.state, "_reserve_group_ids", "count", args[0], UINT32_MAX, &count)) return nullptr;
  const Result<uint32_t> first = group.session->runtime->reserve_group_ids(static_cast<uint32_t>(count));
  if (!first.is_ok()) return raise_status(*group.state, first.status());
  return PyLong_FromUnsignedLong(first.value());
}

PyObject* quit_group(GroupObject& group, PyObject* const*, Py_ssize_t, PyObject*) {
  const Status status = run(group, [](Communicator& communicator) {
    communicator.quit(Status(Code::kAborted, "this rank has aborted the group"));
    return Status();
  });
  return finish(group, status, nullptr, Py_None);
}

PyObject* subgroup(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("pycollective.runtime.groups", "subgroup", group, args, nargs, kwnames);
}
PyObject* split(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_python("pycollective.runtime.groups", "split", group, args, nargs, kwnames);
}

}  // namespace pc
