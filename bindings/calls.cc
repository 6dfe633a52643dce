#include "calls.h"

#include <chrono>

#include "arguments.h"
#include "bind_errors.h"
#include "view.h"

namespace pc {
namespace {

constexpr int64_t kMostTag = UINT32_MAX;

// nullptr with a Python error set if calls on this group cannot be made. The answer holds until Python code runs.
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

// Alone in the world no call waits, and nothing else runs during one.
bool waits(const GroupObject& group) { return group.size > 1; }

// For errors and the flight recorder. Alone in the world neither has anything to tell.
const char* site_of(const GroupObject& group) { return waits(group) ? group.state->sites.here() : nullptr; }

// Runs `call(communicator)`, which keeps the runtime alive: signal handlers and other threads may shut it down meanwhile.
// Views come first, since taking them may run Python code. Alone in the world a call cannot wait, so the GIL is kept:
// giving it away and taking it back costs more than the call.
template <class Call>
Status run(GroupObject& group, Call&& call) {
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return Status(Code::kInvalidArgument, {});  // nothing was touched
  const Session& session = *group.session;
  std::shared_ptr<Runtime> runtime = session.runtime;
  if (!waits(group)) return call(*communicator);
  PyThreadState* thread = PyEval_SaveThread();
  Status status = call(*communicator);
  PyEval_RestoreThread(thread);
  if (session.runtime == nullptr) {
    // Shut down meanwhile: this may be the last reference, and letting it go may wait.
    thread = PyEval_SaveThread();
    runtime.reset();
    PyEval_RestoreThread(thread);
  }
  return status;
}

const HostMap::Entry* process_of(const GroupObject& group, Rank peer) {
  const std::shared_ptr<Runtime>& runtime = group.session->runtime;
  if (runtime == nullptr || peer < 0) return nullptr;
  const std::vector<HostMap::Entry>& ranks = runtime->hosts().ranks;
  return static_cast<std::size_t>(peer) < ranks.size() ? &ranks[static_cast<std::size_t>(peer)] : nullptr;
}

// The end of every call: raises, or hands `result` back. `written`: what the call writes, if anything.
PyObject* finish(const GroupObject& group, const Status& status, const View* written, PyObject* result) {
  const State& state = *group.state;
  if (status.is_ok() && (!waits(group) || PyErr_Occurred() == nullptr)) [[likely]] {
    return written == nullptr || written->note_write(state) ? Py_NewRef(result) : nullptr;
  }
  if (!status.is_ok())
    raise_status(state, status,
                 process_of(group, status.peer()));  // else: a signal handler raised while the call waited
  if (written == nullptr || status.code() == Code::kInvalidArgument) return nullptr;
  PyObject *type = nullptr, *value = nullptr,
           *traceback = nullptr;  // the memory may have been written in part
  PyErr_Fetch(&type, &value, &traceback);
  if (!written->note_write(state)) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return nullptr;
}

}  // namespace

PyObject* allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"allreduce", 1, 2, 4, {kX, kOp, kOut, kTimeout}};
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  const char* const site = site_of(group);  // before the views: it may run Python code
  Request request;
  request.collective = Collective::kAllreduce;
  double timeout = -1;
  if (!to_op(state, "allreduce", given[1], &request.op) ||
      !to_timeout(state, "allreduce", given[3], &timeout)) {
    return nullptr;
  }
  PyObject* out = given[2] == nullptr || given[2] == Py_None ? given[0] : given[2];
  View in_view, out_view;
  // Asking another kind of array for its memory may run code that moves x.
  const bool held = waits(group) || Py_TYPE(out) != Py_TYPE(given[0]);
  const Use in_use = {"allreduce", "x", out == given[0], held}, out_use = {"allreduce", "out", true, held};
  const View* written = &in_view;
  if (out == given[0]) {
    if (!in_view.take(state, out, in_use)) return nullptr;
  } else {
    // A NumPy array comes last: looking at it runs no code, and nothing keeps its memory in place while other code runs.
    const bool out_first = PyObject_TypeCheck(given[0], reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0;
    if (out_first && !out_view.take(state, out, out_use)) return nullptr;
    if (!in_view.take(state, given[0], in_use)) return nullptr;
    if (!out_first && !out_view.take(state, out, out_use)) return nullptr;
    if (!out_view.matches(state, in_view, out_use)) return nullptr;
    written = &out_view;
  }
  if (!in_view.fits(state, request.op, in_use)) return nullptr;
  request.in = in_view.buffer();
  request.out = written->buffer();
  request.site = site;
  const Status status = run(group, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, written, out);
}

PyObject* broadcast(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"broadcast", 1, 2, 3, {kX, kRoot, kTimeout}};
  State& state = *group.state;
  PyObject* given[3];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  const char* const site = site_of(group);
  int64_t root = 0;
  double timeout = -1;
  if (!to_integer(state, "broadcast", "root", given[1], group.size - 1, &root) ||
      !to_timeout(state, "broadcast", given[2], &timeout)) {
    return nullptr;
  }
  const bool writes = root != group.rank;
  View view;
  if (!view.take(state, given[0], {"broadcast", "x", writes, waits(group)})) return nullptr;
  Request request;
  request.collective = Collective::kBroadcast;
  request.root = static_cast<Rank>(root);
  request.out = view.buffer();
  if (!writes) request.in = view.buffer();
  request.site = site;
  const Status status = run(group, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, writes ? &view : nullptr, given[0]);
}

PyObject* reduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"reduce", 1, 2, 4, {kX, kOp, kRoot, kTimeout}};
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  const char* const site = site_of(group);
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
  const Use use = {"reduce", "x", writes, waits(group)};
  if (!view.take(state, given[0], use) || !view.fits(state, request.op, use)) return nullptr;
  request.root = static_cast<Rank>(root);
  request.in = view.buffer();
  if (writes) request.out = view.buffer();
  request.site = site;
  const Status status = run(group, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, writes ? &view : nullptr, given[0]);
}

// send and recv differ in direction only.
static PyObject* point_to_point(GroupObject& group, bool sends, PyObject* const* args, Py_ssize_t nargs,
                                PyObject* kwnames) {
  static constexpr Signature kSend = {"send", 2, 2, 4, {kX, kPeer, kTag, kTimeout}};
  static constexpr Signature kRecv = {"recv", 2, 2, 4, {kX, kPeer, kTag, kTimeout}};
  const Signature& signature = sends ? kSend : kRecv;
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, signature, args, nargs, kwnames, given)) return nullptr;
  const char* const site = site_of(group);
  int64_t peer = 0, tag = 0;
  double timeout = -1;
  if (!to_integer(state, signature.function, "peer", given[1], group.size - 1, &peer) ||
      !to_integer(state, signature.function, "tag", given[2], kMostTag, &tag) ||
      !to_timeout(state, signature.function, given[3], &timeout)) {
    return nullptr;
  }
  View view;
  if (!view.take(state, given[0], {signature.function, "x", !sends, waits(group)})) return nullptr;
  const Rank rank = static_cast<Rank>(peer);
  const uint32_t tag32 = static_cast<uint32_t>(tag);
  const Status status = run(group, [&](Communicator& c) {
    return sends ? c.send(view.buffer(), rank, tag32, timeout, site)
                 : c.recv(view.buffer(), rank, tag32, timeout, site);
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
  const char* const site = site_of(group);
  double timeout = -1;
  if (!to_timeout(state, "barrier", given[0], &timeout)) return nullptr;
  Request request;
  request.collective = Collective::kBarrier;
  request.site = site;
  const Status status = run(group, [&](Communicator& c) { return c.run(request, timeout); });
  return finish(group, status, nullptr, Py_None);
}

PyObject* resync(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"resync", 0, 0, 1, {kTimeout}};
  State& state = *group.state;
  PyObject* given[1];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return nullptr;
  const char* const site = site_of(group);
  double timeout = -1;
  if (!to_timeout(state, "resync", given[0], &timeout)) return nullptr;
  const Status status = run(group, [&](Communicator& c) { return c.resync(timeout, site); });
  return finish(group, status, nullptr, Py_None);
}

PyObject* explain(GroupObject& group, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"collective", "nbytes", "root", nullptr};
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

PyObject* time_calls(GroupObject& group, PyObject* array, int64_t count) {
  View view;
  if (!view.take(*group.state, array, {"_time_calls", "x", true, true})) return nullptr;
  Request request;
  request.collective = Collective::kAllreduce;
  request.in = view.buffer();
  request.out = view.buffer();
  double seconds = 0;
  const Status status = run(group, [&](Communicator& c) {
    const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    Status done;
    for (int64_t i = 0; i < count && done.is_ok(); ++i) done = c.run(request);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return done;
  });
  PyObject* result = PyFloat_FromDouble(seconds);
  if (result == nullptr) return nullptr;
  PyObject* returned = finish(group, status, &view, result);
  Py_DECREF(result);
  return returned;
}

}  // namespace pc
