#include "bind_group.h"

#include <new>

#include "arguments.h"
#include "bind_errors.h"
#include "group_docs.h"
#include "view.h"

namespace pc {
namespace {

constexpr int64_t kMostTag = UINT32_MAX;

// nullptr with a Python error set if calls on this group cannot be made.
Communicator* usable(const GroupObject& group) {
  const State& state = *group.state;
  if (group.session->forked) {
    PyErr_SetString(
        state.forked_error,
        "this process was forked from one that had called pycollective.init(): a forked child cannot use its "
        "parent's connections. Start processes by spawn, or call pycollective.init() after the fork");
    return nullptr;
  }
  if (group.session->runtime != nullptr) return group.communicator;
  raise_status(
      state,
      Status(Code::kNotInitialized,
             "this group belongs to a world that was shut down: call pycollective.init() again and take "
             "the new world"));
  return nullptr;
}

bool leaves_world_usable(Code code) {
  return code == Code::kOk || code == Code::kInvalidArgument || code == Code::kUnsupported;
}

// Runs `call(communicator)`. Alone in the world it cannot wait, so the GIL is kept: giving it away and taking it back
// costs more than the call.
template <class Call>
Status run(GroupObject& group, Communicator& communicator, Call&& call) {
  if (group.size == 1) return call(communicator);
  const std::shared_ptr<Session> session = group.session;
  std::shared_ptr<Runtime> runtime = session->runtime;
  PyThreadState* thread = PyEval_SaveThread();
  Status status = call(communicator);
  PyEval_RestoreThread(thread);
  if (!leaves_world_usable(status.code())) session->failed = true;
  if (session->runtime == nullptr) {
    // Shut down meanwhile: this may be the last reference, and letting it go may wait.
    thread = PyEval_SaveThread();
    runtime.reset();
    PyEval_RestoreThread(thread);
  }
  return status;
}

// The end of every call: raises, or hands `result` back. `written`: what the call writes, if anything.
PyObject* finish(const GroupObject& group, const Status& status, const View* written, PyObject* result) {
  const State& state = *group.state;
  if (status.is_ok() && (group.size == 1 || PyErr_Occurred() == nullptr)) [[likely]] {
    return written == nullptr || written->note_write(state) ? Py_NewRef(result) : nullptr;
  }
  if (!status.is_ok()) raise_status(state, status);  // else: a signal handler raised while the call waited
  if (written == nullptr || status.code() == Code::kInvalidArgument) return nullptr;
  PyObject *type = nullptr, *value = nullptr,
           *traceback = nullptr;  // the memory may have been written in part
  PyErr_Fetch(&type, &value, &traceback);
  if (!written->note_write(state)) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return nullptr;
}

PyObject* allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"allreduce", 1, 2, 4, {kX, kOp, kOut, kTimeout}};
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  Request request;
  request.collective = Collective::kAllreduce;
  double timeout = -1;
  if (!to_op(state, "allreduce", given[1], &request.op) ||
      !to_timeout(state, "allreduce", given[3], &timeout)) {
    return nullptr;
  }
  PyObject* out = given[2] == nullptr || given[2] == Py_None ? given[0] : given[2];
  View in_view, out_view;
  if (!in_view.take(state, given[0], {"allreduce", "x", out == given[0]})) return nullptr;
  const View* written = &in_view;
  if (out != given[0]) {
    const Use use = {"allreduce", "out", true};
    if (!out_view.take(state, out, use) || !out_view.matches(state, in_view, use)) return nullptr;
    written = &out_view;
  }
  request.in = in_view.buffer();
  request.out = written->buffer();
  const Status status = run(group, *communicator, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, written, out);
}

PyObject* broadcast(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"broadcast", 1, 2, 3, {kX, kRoot, kTimeout}};
  State& state = *group.state;
  PyObject* given[3];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  int64_t root = 0;
  double timeout = -1;
  if (!to_integer(state, "broadcast", "root", given[1], group.size - 1, &root) ||
      !to_timeout(state, "broadcast", given[2], &timeout)) {
    return nullptr;
  }
  const bool writes = root != group.rank;
  View view;
  if (!view.take(state, given[0], {"broadcast", "x", writes})) return nullptr;
  Request request;
  request.collective = Collective::kBroadcast;
  request.root = static_cast<Rank>(root);
  request.out = view.buffer();
  if (!writes) request.in = view.buffer();
  const Status status = run(group, *communicator, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, writes ? &view : nullptr, given[0]);
}

PyObject* reduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"reduce", 1, 2, 4, {kX, kOp, kRoot, kTimeout}};
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  Request request;
  request.collective = Collective::kReduce;
  int64_t root = 0;
  double timeout = -1;
  if (!to_op(state, "reduce", given[1], &request.op) ||
      !to_integer(state, "reduce", "root", given[2], group.size - 1, &root) ||
      !to_timeout(state, "reduce", given[3], &timeout)) {
    return nullptr;
  }
  const bool writes = root == group.rank;
  View view;
  if (!view.take(state, given[0], {"reduce", "x", writes})) return nullptr;
  request.root = static_cast<Rank>(root);
  request.in = view.buffer();
  if (writes) request.out = view.buffer();
  const Status status = run(group, *communicator, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, writes ? &view : nullptr, given[0]);
}

// send and recv differ in direction only.
PyObject* point_to_point(GroupObject& group, bool sends, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* kwnames) {
  static constexpr Signature kSend = {"send", 2, 2, 4, {kX, kPeer, kTag, kTimeout}};
  static constexpr Signature kRecv = {"recv", 2, 2, 4, {kX, kPeer, kTag, kTimeout}};
  const Signature& signature = sends ? kSend : kRecv;
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, signature, args, nargs, kwnames, given)) return nullptr;
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  int64_t peer = 0, tag = 0;
  double timeout = -1;
  if (!to_integer(state, signature.function, "peer", given[1], group.size - 1, &peer) ||
      !to_integer(state, signature.function, "tag", given[2], kMostTag, &tag) ||
      !to_timeout(state, signature.function, given[3], &timeout)) {
    return nullptr;
  }
  View view;
  if (!view.take(state, given[0], {signature.function, "x", !sends})) return nullptr;
  const Rank rank = static_cast<Rank>(peer);
  const uint32_t tag32 = static_cast<uint32_t>(tag);
  const Status status = run(group, *communicator, [&](Communicator& c) {
    return sends ? c.send(view.buffer(), rank, tag32, timeout) : c.recv(view.buffer(), rank, tag32, timeout);
  });
  return finish(group, status, sends ? nullptr : &view, given[0]);
}

PyObject* send(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return point_to_point(group, true, args, nargs, kwnames);
}

PyObject* recv(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return point_to_point(group, false, args, nargs, kwnames);
}

PyObject* barrier(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"barrier", 0, 0, 1, {kTimeout}};
  State& state = *group.state;
  PyObject* given[1];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  Communicator* communicator = usable(group);
  double timeout = -1;
  if (communicator == nullptr || !to_timeout(state, "barrier", given[0], &timeout)) return nullptr;
  Request request;
  request.collective = Collective::kBarrier;
  const Status status = run(group, *communicator, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, nullptr, Py_None);
}

using Call = PyObject* (*)(GroupObject&, PyObject* const*, Py_ssize_t, PyObject*);

// Layout of the object that the module's functions are bound to.
struct WorldObject {
  PyObject ob_base;
  State* state;
};

template <Call call>
PyObject* on_group(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return call(*reinterpret_cast<GroupObject*>(self), args, nargs, kwnames);
}

template <Call call>
PyObject* on_world(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const State& state = *reinterpret_cast<WorldObject*>(self)->state;
  if (state.world != nullptr) [[likely]] {
    return call(*state.world, args, nargs, kwnames);
  }
  return raise_status(state,
                      Status(Code::kNotInitialized, "there is no world yet: call pycollective.init() first"));
}

PyObject* explain(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"collective", "nbytes", "root", nullptr};
  const GroupObject& group = *reinterpret_cast<GroupObject*>(self);
  const char* name = nullptr;
  long long nbytes = 0;
  int root = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "s|$Li:explain", const_cast<char**>(names), &name, &nbytes,
                                  &root) == 0) {
    return nullptr;
  }
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  if (nbytes < 0) return refuse(*group.state, "explain: nbytes must not be negative"), nullptr;
  std::string known;
  for (const Collective c :
       {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce, Collective::kBarrier}) {
    if (name_of(c) != name) {
      known += (known.empty() ? "" : ", ") + std::string(name_of(c));
      continue;
    }
    const Result<std::string> text = communicator->explain(c, static_cast<uint64_t>(nbytes), root);
    if (!text.is_ok()) return raise_status(*group.state, text.status());
    return PyUnicode_FromStringAndSize(text.value().data(), static_cast<Py_ssize_t>(text.value().size()));
  }
  return refuse(*group.state, "explain: collective \"" + std::string(name) + "\" is not one of " + known),
         nullptr;
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

// The same calls, on a group and on the world. Static: CPython keeps pointers into these tables.
PyMethodDef* group_methods() {
  static PyMethodDef methods[] = {
      {"allreduce", fast(on_group<allreduce>), kFast, docs::kAllreduce},
      {"broadcast", fast(on_group<broadcast>), kFast, docs::kBroadcast},
      {"reduce", fast(on_group<reduce>), kFast, docs::kReduce},
      {"send", fast(on_group<send>), kFast, docs::kSend},
      {"recv", fast(on_group<recv>), kFast, docs::kRecv},
      {"barrier", fast(on_group<barrier>), kFast, docs::kBarrier},
      {"explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(explain)),
       METH_VARARGS | METH_KEYWORDS, docs::kExplain},
      {},
  };
  return methods;
}
PyObject* world_reduce(PyObject*, PyObject*) {
  return PyUnicode_FromString("_world");
}  // pickle finds it by this name

PyMethodDef* world_methods() {
  static PyMethodDef methods[] = {
      {"allreduce", fast(on_world<allreduce>), kFast, docs::kAllreduce},
      {"broadcast", fast(on_world<broadcast>), kFast, docs::kBroadcast},
      {"reduce", fast(on_world<reduce>), kFast, docs::kReduce},
      {"send", fast(on_world<send>), kFast, docs::kSend},
      {"recv", fast(on_world<recv>), kFast, docs::kRecv},
      {"barrier", fast(on_world<barrier>), kFast, docs::kBarrier},
      {"__reduce__", world_reduce, METH_NOARGS, nullptr},
      {},
  };
  return methods;
}

void group_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<GroupObject*>(self)->session.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

template <Rank GroupObject::*member>
PyObject* get_rank(PyObject* self, void*) {
  return PyLong_FromLong(reinterpret_cast<GroupObject*>(self)->*member);
}

PyObject* group_repr(PyObject* self) {
  const GroupObject& group = *reinterpret_cast<GroupObject*>(self);
  return PyUnicode_FromFormat("<pycollective.Group rank %d of %d%s>", group.rank, group.size,
                              group.session->runtime == nullptr ? ", shut down" : "");
}

PyTypeObject* make_group_type(PyObject* module) {
  static PyGetSetDef members[] = {
      {"rank", get_rank<&GroupObject::rank>, nullptr, "This process's number in the group, from 0.", nullptr},
      {"size", get_rank<&GroupObject::size>, nullptr, "How many ranks the group has.", nullptr},
      {"local_rank", get_rank<&GroupObject::local_rank>, nullptr,
       "This process's number among those on its host.", nullptr},
      {"local_size", get_rank<&GroupObject::local_size>, nullptr, "How many of the ranks are on this host.",
       nullptr},
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

PyObject* make_world_group(State* state, const std::shared_ptr<Session>& session) {
  PyObject* self = state->group_type->tp_alloc(state->group_type, 0);
  if (self == nullptr) return nullptr;
  GroupObject& group = *reinterpret_cast<GroupObject*>(self);
  new (&group.session) std::shared_ptr<Session>(session);
  group.state = state;
  group.communicator = &session->runtime->world();
  group.rank = group.communicator->rank();
  group.size = group.communicator->size();
  group.local_rank = session->runtime->hosts().local_rank;
  group.local_size = session->runtime->hosts().local_size;
  return self;
}

bool is_group(const State& state, PyObject* object) { return Py_TYPE(object) == state.group_type; }

}  // namespace pc
