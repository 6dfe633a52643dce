#include "bindings/calls/calls.h"

#include <chrono>

#include "bindings/calls/arguments.h"
#include "bindings/calls/gpu_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

// Returns true if other code may run during the call, or while its arguments are checked.
bool holds(const GroupObject& group, Form form) { return waits(group) || form != Form::kBlocking; }

}  // namespace

template <Collective collective>
bool prepare_elementwise(GroupObject& group, const Given& given, Form form, PreparedCall& call) {
  State& state = *group.state;
  Request& request = call.request;
  request.collective = collective;
  if (!to_op(state, call.function, given[kOp], &request.op) ||
      !to_timeout(state, call.function, given[kTimeout], &call.timeout_s) ||
      !to_reproducible(state, call.function, given[kReproducible], &request.fixed_order, &call.is_staged) ||
      call.is_staged) {
    return false;
  }
  PyObject* const x = given[kX];
  PyObject* const out = is_given(given[kOut]) ? given[kOut] : x;
  // Taking a view of an array of another type may run code that moves the memory of x.
  const bool held = holds(group, form) || Py_TYPE(out) != Py_TYPE(x);
  const bool on_gpu = form != Form::kPlanned;
  const Use in_use = {call.function, "x", out == x, held, on_gpu},
            out_use = {call.function, "out", true, held, on_gpu};
  call.written = &call.in_view;
  if (out == x) {
    if (!call.in_view.take(state, out, in_use)) return false;
  } else {
    // The NumPy array is taken last: taking it runs no code, and nothing keeps its memory in place
    // while other code runs.
    const bool out_first = PyObject_TypeCheck(x, reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0;
    if (out_first && !call.out_view.take(state, out, out_use)) return false;
    if (!call.in_view.take(state, x, in_use)) return false;
    if (!out_first && !call.out_view.take(state, out, out_use)) return false;
    if (!call.out_view.matches(state, call.in_view, out_use)) return false;
    call.written = &call.out_view;
  }
  if (!call.in_view.fits(state, request.op, in_use)) return false;
  request.in = call.in_view.buffer();
  request.out = call.written->buffer();
  note_shape(group, call.in_view, request);
  call.arrays[0] = x;
  call.arrays[1] = call.result = out;
  return true;
}
template bool prepare_elementwise<Collective::kAllreduce>(GroupObject&, const Given&, Form, PreparedCall&);
template bool prepare_elementwise<Collective::kScan>(GroupObject&, const Given&, Form, PreparedCall&);
template bool prepare_elementwise<Collective::kExscan>(GroupObject&, const Given&, Form, PreparedCall&);

bool prepare_broadcast(GroupObject& group, const Given& given, Form form, PreparedCall& call) {
  State& state = *group.state;
  int64_t root = 0;
  if (!to_integer(state, call.function, "root", given[kRoot], group.size - 1, &root) ||
      !to_timeout(state, call.function, given[kTimeout], &call.timeout_s)) {
    return false;
  }
  const bool writes = root != group.rank;
  if (!call.in_view.take(state, given[kX], {call.function, "x", writes, holds(group, form), true}))
    return false;
  call.request.collective = Collective::kBroadcast;
  call.request.root = static_cast<Rank>(root);
  call.request.out = call.in_view.buffer();
  if (!writes) call.request.in = call.in_view.buffer();
  note_shape(group, call.in_view, call.request);
  call.written = writes ? &call.in_view : nullptr;
  call.arrays[0] = call.result = given[kX];
  return true;
}

bool prepare_reduce(GroupObject& group, const Given& given, Form form, PreparedCall& call) {
  State& state = *group.state;
  Request& request = call.request;
  request.collective = Collective::kReduce;
  int64_t root = 0;
  if (!to_op(state, call.function, given[kOp], &request.op) ||
      !to_integer(state, call.function, "root", given[kRoot], group.size - 1, &root) ||
      !to_timeout(state, call.function, given[kTimeout], &call.timeout_s) ||
      !to_reproducible(state, call.function, given[kReproducible], &request.fixed_order, &call.is_staged) ||
      call.is_staged) {
    return false;
  }
  const bool writes = root == group.rank;
  const Use use = {call.function, "x", writes, holds(group, form), true};
  if (!call.in_view.take(state, given[kX], use) || !call.in_view.fits(state, request.op, use)) return false;
  request.root = static_cast<Rank>(root);
  request.in = call.in_view.buffer();
  if (writes) request.out = call.in_view.buffer();
  note_shape(group, call.in_view, request);
  call.written = writes ? &call.in_view : nullptr;
  call.arrays[0] = call.result = given[kX];
  return true;
}

bool prepare_barrier(GroupObject& group, const Given& given, Form, PreparedCall& call) {
  if (!to_timeout(*group.state, call.function, given[kTimeout], &call.timeout_s)) return false;
  call.request.collective = Collective::kBarrier;
  call.result = Py_None;
  return true;
}

PyObject* resync(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static constexpr Signature kSignature = {"resync", 0, 0, 1, {kTimeout}};
  State& state = *group.state;
  Given given;
  if (!parse(state, kSignature, {args, nargs, kwnames}, given)) return nullptr;
  const char* const site = site_of(group);
  double timeout = -1;
  if (!to_timeout(state, "resync", given[kTimeout], &timeout)) return nullptr;
  const Status status = run(group, [&](Communicator& c) { return c.resync(timeout, site); });
  return finish(group, status, nullptr, Py_None);
}

PyObject* explain(GroupObject& group, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"collective", "nbytes", "root", "rank", "model", "device", nullptr};
  const char *name = nullptr, *model = "", *device = "cpu";
  long long nbytes = 0;
  int root = 0, rank = -1;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "s|$Liiss:explain", const_cast<char**>(names), &name, &nbytes,
                                  &root, &rank, &model, &device) == 0) {
    return nullptr;
  }
  Communicator* communicator = usable(group);
  if (communicator == nullptr) return nullptr;
  if (nbytes < 0) return refuse(*group.state, "explain: nbytes must not be negative"), nullptr;
  const std::string_view called = name;
  const bool is_message = called == "send" || called == "recv" || called == "sendrecv";
  const std::string_view where = device;
  if (where != "cpu" && where != "cuda")
    return refuse(*group.state,
                  "explain: device must be \"cpu\" or \"cuda\", not \"" + std::string(where) + "\""),
           nullptr;
  const std::optional<Collective> collective = collective_from_name(name);
  if (is_message || (collective && where == "cuda")) {
    const std::string text =
        where == "cuda" ? explain_on_gpu(group, collective) : communicator->messages().explain();
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
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
