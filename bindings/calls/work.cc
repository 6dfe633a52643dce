#include "bindings/calls/work.h"

#include <cmath>

#include "bindings/calls/arguments.h"
#include "bindings/calls/pending_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/docs/work_docs.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"
#include "bindings/state/guarded.h"

namespace pc {
namespace {

// Layout of a Work in Python.
struct WorkObject {
  PyObject ob_base;
  State* state;
  std::shared_ptr<Session> session;
  std::shared_ptr<PendingCall> call;
  PyObject* result;
  Rank rank, size;
  bool observed;  // the error, if any, has been reported to the program
};

WorkObject& work_of(PyObject* self) { return *reinterpret_cast<WorkObject*>(self); }

// Returns false with a Python error set in a forked child, which has none of the runtime's threads.
bool is_here(const WorkObject& work) {
  if (!work.session->forked) return true;
  PyErr_SetString(
      work.state->forked_error,
      "this Work belongs to the process that this one was forked from: only that one can wait for it");
  return false;
}

PyObject* new_work(const GroupObject& group, const std::shared_ptr<PendingCall>& call, PyObject* result) {
  PyTypeObject* const type = group.state->work_type;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  WorkObject& work = work_of(self);
  work.state = group.state;
  new (&work.session) std::shared_ptr<Session>(group.session);
  new (&work.call) std::shared_ptr<PendingCall>(call);
  work.result = Py_NewRef(result);
  work.rank = group.rank;
  work.size = group.size;
  work.observed = true;  // so that work_dealloc() detaches no call that has not begun
  return self;
}

// A forked child leaks the call: threads that do not exist in the child may hold its locks.
void work_dealloc(PyObject* self) {
  WorkObject& work = work_of(self);
  PyTypeObject* type = Py_TYPE(self);
  if (work.session->forked) {
    static_cast<void>(new std::shared_ptr<PendingCall>(std::move(work.call)));
  } else if (!work.observed) {
    work.call->handle().detach();
  }
  work.call.~shared_ptr();
  work.session.~shared_ptr();
  Py_DECREF(work.result);
  type->tp_free(self);
  Py_DECREF(type);
}

// Returns the outcome of a wait, or null with a Python error set if the call continues.
std::optional<Status> observed(WorkObject& work, std::optional<Status> outcome, double timeout_s) {
  const AsyncWork& call = work.call->handle();
  if (!outcome && PyErr_Occurred() == nullptr) {
    const std::chrono::duration<double> elapsed = now() - call.began();
    raise_status(*work.state,
                 Status(Code::kTimeout, "Work.wait() gave up after " + std::to_string(timeout_s) +
                                            " s. The call goes on, and can be waited for again")
                     .with_rank(work.rank)
                     .with_operation(call.operation())
                     .with_elapsed(elapsed.count())
                     .with_sequence(call.sequence()));
  }
  work.observed = work.observed || outcome.has_value();
  return outcome;
}

// Returns null with a Python error set if the call continues or the wait was refused.
std::optional<Status> wait_for_end(WorkObject& work, double timeout_s,
                                   AsyncWork::Part part = AsyncWork::Part::kDrives) {
  std::optional<Status> outcome = work.call->wait(*work.session, timeout_s, part);
  if (outcome && !outcome->is_ok() && !work.call->handle().outcome()) {
    raise_status(*work.state, *outcome);  // the wait was refused
    return std::nullopt;
  }
  if (outcome) work.call->settle();
  return observed(work, std::move(outcome), timeout_s);
}

// Parses the arguments of wait() and of exception(), which has no `host`. Returns false with a
// Python error set.
bool take_timeout(WorkObject& work, const char* function, PyObject* const* args, Py_ssize_t nargs,
                  PyObject* kwnames, double* seconds, bool* host = nullptr) {
  const Signature signature = {function, 0, 1, host == nullptr ? 1 : 2, {kTimeout, kHost}};
  Given given;
  if (!is_here(work) || !parse(*work.state, signature, {args, nargs, kwnames}, given)) return false;
  work.state->ended_calls->settle();
  if (given[kHost] != nullptr) {
    const int truth = PyObject_IsTrue(given[kHost]);
    if (truth < 0) return false;
    *host = truth == 1;
  }
  return to_timeout(*work.state, function, given[kTimeout], seconds);
}

PyObject* wait(WorkObject& work, double timeout_s, bool host) {
  const Ref alive(Py_NewRef(reinterpret_cast<PyObject*>(&work)));
  std::optional<void*> stream;
  if (!host && !work.call->ask_stream(&stream)) return nullptr;
  const std::optional<Status> outcome =
      stream ? observed(work, work.call->precede(*work.session, timeout_s, *stream), timeout_s)
             : wait_for_end(work, timeout_s);
  if (!outcome) return nullptr;
  if (outcome->is_ok()) return Py_NewRef(work.result);
  return raise_status(*work.state, *outcome, process_of(*work.session, outcome->peer()));
}

PyObject* work_wait(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    double seconds = -1;
    bool host = false;
    if (!take_timeout(work_of(self), "wait", args, nargs, kwnames, &seconds, &host)) return nullptr;
    return wait(work_of(self), seconds, host);
  });
}

PyObject* work_result(PyObject* self, PyObject*) {
  return guarded([&] { return is_here(work_of(self)) ? wait(work_of(self), -1, false) : nullptr; });
}

PyObject* work_exception(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    WorkObject& work = work_of(self);
    double seconds = -1;
    if (!take_timeout(work, "exception", args, nargs, kwnames, &seconds)) return nullptr;
    const std::optional<Status> outcome = wait_for_end(work, seconds);
    if (!outcome) return nullptr;
    if (outcome->is_ok()) return Py_NewRef(Py_None);
    raise_status(*work.state, *outcome, process_of(*work.session, outcome->peer()));
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
  });
}

// Waits while the progress thread, which sleeps when it can, drives the call. This is for a rank
// that waits for ranks that still compute, possibly on the same cores. A thread that drives calls
// while it waits stays awake and yields, and takes CPU time from those ranks (4 ranks on 2 cores:
// half of a training step).
PyObject* work_wait_only(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    WorkObject& work = work_of(self);
    if (!is_here(work)) return nullptr;
    work.state->ended_calls->settle();
    if (!wait_for_end(work, -1, AsyncWork::Part::kWaitsOnly)) return nullptr;
    return Py_NewRef(Py_None);
  });
}

// Calls `ask` with the handle of the call. For a call on a GPU it releases the GIL, since the
// driver may block while a thread is stuck inside NCCL.
template <class Ask>
bool at_once(const WorkObject& work, Ask&& ask) {
  if (!work.call->is_on_gpu()) return ask(work.call->handle());
  const auto call = work.call;  // the Work may be destroyed meanwhile
  const WithoutGil released;
  return ask(call->handle());
}

PyObject* work_done(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    WorkObject& work = work_of(self);
    if (!is_here(work)) return nullptr;
    work.state->ended_calls->settle();
    const bool done = at_once(work, [](const AsyncWork& call) { return call.done(); });
    return PyBool_FromLong(done ? 1 : 0);
  });
}

PyObject* work_is_queued(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const WorkObject& work = work_of(self);
    if (!is_here(work)) return nullptr;
    const bool queued = at_once(work, [](const AsyncWork& call) { return call.precedes_at_once(); });
    return PyBool_FromLong(queued ? 1 : 0);
  });
}

// The state of a Work's call, for info() and repr().
struct Facts {
  const char* state;
  std::string operation;
};
Facts facts_of(const PendingCall& call) {
  const std::optional<Status> outcome = call.handle().outcome();
  const std::string& operation = call.handle().operation();
  return {!outcome           ? "running"
          : outcome->is_ok() ? "done"
                             : "failed",
          operation.empty() ? call.function() : operation};
}

PyObject* work_info(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const WorkObject& work = work_of(self);
    if (!is_here(work)) return nullptr;
    const Facts facts = facts_of(*work.call);
    const AsyncWork& call = work.call->handle();
    const Ref sequence(call.sequence() == 0 ? Py_NewRef(Py_None)
                                            : PyLong_FromUnsignedLongLong(call.sequence()));
    if (!sequence) return nullptr;
    const std::chrono::duration<double> elapsed = call.ended_at() - call.began();
    return Py_BuildValue("{sssssisisOsnsd}", "operation", facts.operation.c_str(), "state", facts.state,
                         "rank", work.rank, "size", work.size, "sequence", sequence.get(), "nbytes",
                         static_cast<Py_ssize_t>(work.call->nbytes()), "elapsed_s", elapsed.count());
  });
}

PyObject* work_repr(PyObject* self) {
  return guarded([&]() -> PyObject* {
    const WorkObject& work = work_of(self);
    if (work.session->forked) return PyUnicode_FromString("<pycollective.Work of the parent process>");
    const Facts facts = facts_of(*work.call);
    return PyUnicode_FromFormat("<pycollective.Work %s, %s>", facts.operation.c_str(), facts.state);
  });
}

PyObject* work_await(PyObject* self) {
  const Ref module(PyImport_ImportModule("pycollective.calls.work"));
  return module ? PyObject_CallMethod(module.get(), "wait_in_loop", "O", self) : nullptr;
}

PyObject* work_watch(PyObject* self, PyObject* fd) {
  return guarded([&]() -> PyObject* {
    const int event = PyObject_AsFileDescriptor(fd);
    if (event < 0 || !is_here(work_of(self))) return nullptr;
    PendingCall& call = *work_of(self).call;
    return PyBool_FromLong(!call.handle().outcome() && call.notifier().watch(event) ? 1 : 0);
  });
}

PyObject* work_unwatch(PyObject* self, PyObject* fd) {
  return guarded([&]() -> PyObject* {
    const int event = PyObject_AsFileDescriptor(fd);
    if (event < 0 || !is_here(work_of(self))) return nullptr;
    work_of(self).call->notifier().unwatch(event);
    return Py_NewRef(Py_None);
  });
}

PyTypeObject* make_work_type(PyObject* module) {
  static PyMethodDef methods[] = {
      {"done", work_done, METH_NOARGS, docs::kDone},
      {"wait", fast(work_wait), kFast, docs::kWait},
      {"result", work_result, METH_NOARGS, docs::kResult},
      {"exception", fast(work_exception), kFast, docs::kException},
      {"info", work_info, METH_NOARGS, docs::kInfo},
      {"_wait_only", work_wait_only, METH_NOARGS, docs::kWaitOnly},
      {"_is_queued", work_is_queued, METH_NOARGS, docs::kIsQueued},
      {"_watch", work_watch, METH_O, docs::kWatch},
      {"_unwatch", work_unwatch, METH_O, docs::kUnwatch},
      {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, docs::kClassGetItem},
      {},
  };
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(work_dealloc)},
      {Py_tp_methods, methods},
      {Py_tp_repr, reinterpret_cast<void*>(work_repr)},
      {Py_am_await, reinterpret_cast<void*>(work_await)},
      {Py_tp_doc, const_cast<char*>(docs::kWork)},
      {0, nullptr},
  };
  PyType_Spec spec = {"pycollective.Work", static_cast<int>(sizeof(WorkObject)), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
}

}  // namespace

bool add_work(PyObject* module, State* state) {
  state->work_type = make_work_type(module);
  return state->work_type != nullptr &&
         PyModule_AddObjectRef(module, "Work", reinterpret_cast<PyObject*>(state->work_type)) == 0;
}

PyObject* launch_prepared(GroupObject& group, std::unique_ptr<PreparedCall> prepared) {
  group.state->ended_calls->settle();
  PyObject* const result = prepared->result;
  const auto call = std::make_shared<PendingCall>(group, std::move(prepared));
  const Ref work(new_work(group, call, result));  // first, because nothing may fail once the call has begun
  if (!work || !call->begin(group)) return nullptr;
  work_of(work.get()).observed = false;
  return Py_NewRef(work.get());
}

}  // namespace pc
