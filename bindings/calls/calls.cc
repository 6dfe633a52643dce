#include "bindings/calls/calls.h"

#include <chrono>

#include "bindings/calls/arguments.h"
#include "bindings/calls/forms.h"
#include "bindings/calls/gpu_call.h"
#include "bindings/calls/planned_call.h"
#include "bindings/calls/prepared_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

// Other code may run before the call is over, or while it looks at its arguments.
bool holds(const GroupObject& group, Form form) { return waits(group) || form != Form::kBlocking; }

// allreduce, scan and exscan: every rank has an array, and gets one of the same shape.
constexpr const char* name_of_elementwise(Collective collective, Form form) {
  switch (collective) {
    case Collective::kScan: return function_name(form, "scan", "scan_async");
    case Collective::kExscan: return function_name(form, "exscan", "exscan_async");
    default:
      return form == Form::kPlanned ? "plan_allreduce" : function_name(form, "allreduce", "allreduce_async");
  }
}

template <Form form, Collective collective>
bool prepare_elementwise(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                         PreparedCall& call) {
  static constexpr Signature kSignature = {
      name_of_elementwise(collective, form), 1, 2, 5, {kX, kOp, kOut, kTimeout, kReproducible}};
  const char* const function = call.function = kSignature.function;
  State& state = *group.state;
  PyObject* given[5];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return false;
  const char* const site = site_of(group);  // before the views: it may run Python code
  Request& request = call.request;
  request.collective = collective;
  if (!to_op(state, function, given[1], &request.op) ||
      !to_timeout(state, function, given[3], &call.timeout_s) ||
      !to_reproducible(state, function, given[4], &request.fixed_order, &call.is_staged) || call.is_staged) {
    return false;
  }
  PyObject* out = is_given(given[2]) ? given[2] : given[0];
  // Asking another kind of array for its memory may run code that moves x.
  const bool held = holds(group, form) || Py_TYPE(out) != Py_TYPE(given[0]);
  const bool on_gpu = form != Form::kPlanned;
  const Use in_use = {function, "x", out == given[0], held, on_gpu},
            out_use = {function, "out", true, held, on_gpu};
  call.written = &call.in_view;
  if (out == given[0]) {
    if (!call.in_view.take(state, out, in_use)) return false;
  } else {
    // A NumPy array comes last: looking at it runs no code, and nothing keeps its memory in place while other code runs.
    const bool out_first = PyObject_TypeCheck(given[0], reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0;
    if (out_first && !call.out_view.take(state, out, out_use)) return false;
    if (!call.in_view.take(state, given[0], in_use)) return false;
    if (!out_first && !call.out_view.take(state, out, out_use)) return false;
    if (!call.out_view.matches(state, call.in_view, out_use)) return false;
    call.written = &call.out_view;
  }
  if (!call.in_view.fits(state, request.op, in_use)) return false;
  request.in = call.in_view.buffer();
  request.out = call.written->buffer();
  request.site = site;
  note_shape(group, call.in_view, request);
  call.arrays[0] = given[0];
  call.arrays[1] = call.result = out;
  return true;
}

template <Form form>
bool prepare_broadcast(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                       PreparedCall& call) {
  static constexpr Signature kSignature = {
      function_name(form, "broadcast", "broadcast_async"), 1, 2, 3, {kX, kRoot, kTimeout}};
  const char* const function = call.function = kSignature.function;
  State& state = *group.state;
  PyObject* given[3];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return false;
  const char* const site = site_of(group);
  int64_t root = 0;
  if (!to_integer(state, function, "root", given[1], group.size - 1, &root) ||
      !to_timeout(state, function, given[2], &call.timeout_s)) {
    return false;
  }
  const bool writes = root != group.rank;
  if (!call.in_view.take(state, given[0], {function, "x", writes, holds(group, form), true})) return false;
  call.request.collective = Collective::kBroadcast;
  call.request.root = static_cast<Rank>(root);
  call.request.out = call.in_view.buffer();
  if (!writes) call.request.in = call.in_view.buffer();
  call.request.site = site;
  note_shape(group, call.in_view, call.request);
  call.written = writes ? &call.in_view : nullptr;
  call.arrays[0] = call.result = given[0];
  return true;
}

template <Form form>
bool prepare_reduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                    PreparedCall& call) {
  static constexpr Signature kSignature = {
      function_name(form, "reduce", "reduce_async"), 1, 2, 5, {kX, kOp, kRoot, kTimeout, kReproducible}};
  const char* const function = call.function = kSignature.function;
  State& state = *group.state;
  PyObject* given[5];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return false;
  const char* const site = site_of(group);
  Request& request = call.request;
  request.collective = Collective::kReduce;
  int64_t root = 0;
  if (!to_op(state, function, given[1], &request.op) ||
      !to_integer(state, function, "root", given[2], group.size - 1, &root) ||
      !to_timeout(state, function, given[3], &call.timeout_s) ||
      !to_reproducible(state, function, given[4], &request.fixed_order, &call.is_staged) || call.is_staged) {
    return false;
  }
  const bool writes = root == group.rank;
  const Use use = {function, "x", writes, holds(group, form), true};
  if (!call.in_view.take(state, given[0], use) || !call.in_view.fits(state, request.op, use)) return false;
  request.root = static_cast<Rank>(root);
  request.in = call.in_view.buffer();
  if (writes) request.out = call.in_view.buffer();
  request.site = site;
  note_shape(group, call.in_view, request);
  call.written = writes ? &call.in_view : nullptr;
  call.arrays[0] = call.result = given[0];
  return true;
}

template <Form form>
bool prepare_barrier(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                     PreparedCall& call) {
  static constexpr Signature kSignature = {
      function_name(form, "barrier", "barrier_async"), 0, 0, 1, {kTimeout}};
  State& state = *group.state;
  PyObject* given[1];
  if (!parse(state, kSignature, args, nargs, kwnames, given)) return false;
  call.request.site = site_of(group);
  if (!to_timeout(state, kSignature.function, given[0], &call.timeout_s)) return false;
  call.request.collective = Collective::kBarrier;
  call.function = kSignature.function;
  call.result = Py_None;
  return true;
}

}  // namespace

PyObject* allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return blocking<prepare_elementwise<Form::kBlocking, Collective::kAllreduce>>(group, args, nargs, kwnames);
}

PyObject* allreduce_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_background<prepare_elementwise<Form::kAsync, Collective::kAllreduce>, true>(group, args, nargs,
                                                                                        kwnames);
}

PyObject* plan_allreduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  auto call = std::make_unique<PreparedCall>();
  const bool prepared =
      prepare_elementwise<Form::kPlanned, Collective::kAllreduce>(group, args, nargs, kwnames, *call);
  if (prepared) return usable(group) == nullptr ? nullptr : plan_prepared(group, std::move(call));
  const bool stageable = call->is_staged || call->in_view.stageable() || call->out_view.stageable();
  return stageable ? staged(call->function, group, args, nargs, kwnames) : nullptr;
}

PyObject* scan(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return blocking<prepare_elementwise<Form::kBlocking, Collective::kScan>>(group, args, nargs, kwnames);
}

PyObject* scan_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_background<prepare_elementwise<Form::kAsync, Collective::kScan>, true>(group, args, nargs,
                                                                                   kwnames);
}

PyObject* exscan(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return blocking<prepare_elementwise<Form::kBlocking, Collective::kExscan>>(group, args, nargs, kwnames);
}

PyObject* exscan_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_background<prepare_elementwise<Form::kAsync, Collective::kExscan>, true>(group, args, nargs,
                                                                                     kwnames);
}

PyObject* broadcast(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return blocking<prepare_broadcast<Form::kBlocking>>(group, args, nargs, kwnames);
}

PyObject* broadcast_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_background<prepare_broadcast<Form::kAsync>, true>(group, args, nargs, kwnames);
}

PyObject* reduce(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return blocking<prepare_reduce<Form::kBlocking>>(group, args, nargs, kwnames);
}

PyObject* reduce_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_background<prepare_reduce<Form::kAsync>, true>(group, args, nargs, kwnames);
}

PyObject* barrier(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return blocking<prepare_barrier<Form::kBlocking>>(group, args, nargs, kwnames);
}

PyObject* barrier_async(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return in_background<prepare_barrier<Form::kAsync>>(group, args, nargs, kwnames);
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
        where == "cuda" ? explain_on_gpu(group, collective) : communicator->explain_messages();
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
