#include "calls.h"

#include <chrono>

#include "arguments.h"
#include "bind_errors.h"
#include "call.h"

namespace pc {
namespace {

constexpr int64_t kMostTag = UINT32_MAX;

}  // namespace

// allreduce, scan and exscan: every rank has an array, and gets one of the same shape.
template <Collective collective>
static PyObject* elementwise(const char* function, GroupObject& group, PyObject* const* args,
                             Py_ssize_t nargs, PyObject* kwnames) {
  const Signature signature = {function, 1, 2, 4, {kX, kOp, kOut, kTimeout}};
  State& state = *group.state;
  PyObject* given[4];
  if (!parse(state, signature, args, nargs, kwnames, given)) return nullptr;
  const char* const site = site_of(group);  // before the views: it may run Python code
  Request request;
  request.collective = collective;
  double timeout = -1;
  if (!to_op(state, function, given[1], &request.op) || !to_timeout(state, function, given[3], &timeout)) {
    return nullptr;
  }
  PyObject* out = given[2] == nullptr || given[2] == Py_None ? given[0] : given[2];
  View in_view, out_view;
  const auto refused = [&] {
    const bool stageable = in_view.stageable() || out_view.stageable();
    return stageable ? staged(function, group, args, nargs, kwnames) : nullptr;
  };
  // Asking another kind of array for its memory may run code that moves x.
  const bool held = waits(group) || Py_TYPE(out) != Py_TYPE(given[0]);
  const Use in_use = {function, "x", out == given[0], held}, out_use = {function, "out", true, held};
  const View* written = &in_view;
  if (out == given[0]) {
    if (!in_view.take(state, out, in_use)) return refused();
  } else {
    // A NumPy array comes last: looking at it runs no code, and nothing keeps its memory in place while other code runs.
    const bool out_first = PyObject_TypeCheck(given[0], reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0;
    if (out_first && !out_view.take(state, out, out_use)) return refused();
    if (!in_view.take(state, given[0], in_use)) return refused();
    if (!out_first && !out_view.take(state, out, out_use)) return refused();
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

PyObject* allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return elementwise<Collective::kAllreduce>("allreduce", group, args, nargs, kwnames);
}
PyObject* scan(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return elementwise<Collective::kScan>("scan", group, args, nargs, kwnames);
}
PyObject* exscan(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return elementwise<Collective::kExscan>("exscan", group, args, nargs, kwnames);
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
  if (!view.take(state, given[0], {"broadcast", "x", writes, waits(group)})) {
    return view.stageable() ? staged("broadcast", group, args, nargs, kwnames) : nullptr;
  }
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
  if (!view.take(state, given[0], use)) {
    return view.stageable() ? staged("reduce", group, args, nargs, kwnames) : nullptr;
  }
  if (!view.fits(state, request.op, use)) return nullptr;
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
  if (!view.take(state, given[0], {signature.function, "x", !sends, waits(group)})) {
    return view.stageable() ? staged(signature.function, group, args, nargs, kwnames) : nullptr;
  }
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
  static const char* names[] = {"collective", "nbytes", "root", "rank", "model", nullptr};
  const char *name = nullptr, *model = "";
  long long nbytes = 0;
  int root = 0, rank = -1;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "s|$Liis:explain", const_cast<char**>(names), &name, &nbytes,
                                  &root, &rank, &model) == 0) {
    return nullptr;
  }
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  if (nbytes < 0) return refuse(*group.state, "explain: nbytes must not be negative"), nullptr;
  const std::optional<Collective> collective = collective_from_name(name);
  if (!collective) {
    std::string known;
    for (int c = 0; c < kCollectiveCount; ++c)
      known += (c == 0 ? "" : ", ") + std::string(name_of(static_cast<Collective>(c)));
    refuse(*group.state, "explain: collective \"" + std::string(name) + "\" is not one of " + known);
    return nullptr;
  }
  const ExplainedCall call{*collective, static_cast<uint64_t>(nbytes), root, {}, rank, {}, model};
  const Result<std::string> text = communicator->explain(call);
  if (!text.is_ok()) return raise_status(*group.state, text.status());
  return PyUnicode_FromStringAndSize(text.value().data(), static_cast<Py_ssize_t>(text.value().size()));
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
