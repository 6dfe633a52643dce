#include "bindings/calls/planned_call.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "bindings/arrays/planned_arrays.h"
#include "bindings/calls/containers.h"
#include "bindings/calls/gpu_call.h"
#include "bindings/calls/list_calls.h"
#include "bindings/calls/prepared_call.h"
#include "bindings/calls/running_call.h"
#include "bindings/docs/planned_docs.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"
#include "bindings/state/guarded.h"

namespace pc {
namespace {

using Clock = std::chrono::steady_clock;

struct PlannedStep {
  std::unique_ptr<PreparedCall> call;
  PlannedArrays arrays;
};

// A plan: either steps, or a callable in Python.
struct PlannedCall {
  explicit PlannedCall(GroupObject& of) : group(Py_NewRef(reinterpret_cast<PyObject*>(&of))) {}
  const Ref group;
  std::unique_ptr<Ref> in, out;  // for a call on one array
  Containers x;                  // for a call on a list, or one made in Python
  std::unique_ptr<Ref> words, again;
  std::vector<PlannedStep> steps;  // declared last, hence destroyed first: their views refer to the arrays

  GroupObject& on() const { return *reinterpret_cast<GroupObject*>(group.get()); }
};

// Layout of a PlannedCall in Python.
struct PlannedObject {
  PyObject ob_base;
  PlannedCall* plan;  // owned; null once the garbage collector has cleared it
};

PlannedObject& planned_of(PyObject* self) { return *reinterpret_cast<PlannedObject*>(self); }

std::unique_ptr<Ref> share(PyObject* object) { return std::make_unique<Ref>(Py_NewRef(object)); }

// Returns null with a Python error set.
PyObject* new_planned(const State& state, std::unique_ptr<PlannedCall> plan) {
  PyObject* self = state.planned_type->tp_alloc(state.planned_type, 0);
  if (self != nullptr) planned_of(self).plan = plan.release();
  return self;
}

// Appends the description of this rank's list, which the core does not know, to a pending mismatch
// error.
void add_words(const State& state, PyObject* words) {
  if (PyErr_ExceptionMatches(state.errors[static_cast<std::size_t>(Code::kMismatch)]) == 0) return;
  PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  const Ref text(PyUnicode_FromFormat("%S\n%U", error, words));
  const Ref args(text ? PyTuple_Pack(1, text.get()) : nullptr);
  if (!args || PyObject_SetAttrString(error, "args", args.get()) != 0) PyErr_Clear();
  PyErr_Restore(type, error, traceback);
}

PyObject* make_step(const PlannedStep& step, GroupObject& group, const char* site, Clock::time_point began) {
  const PreparedCall& call = *step.call;
  Request request = call.request;
  request.site = site;
  const std::chrono::duration<double> gone = Clock::now() - began;
  const double left_s = call.timeout_s < 0 ? call.timeout_s : std::max(0.0, call.timeout_s - gone.count());
  const Status status = run(group, [&](Communicator& c) { return c.run(request, left_s); });
  if (call.list != nullptr) return finish_blocks(group, status, call.list.get(), call.result);
  return finish(group, status, call.written, call.result);
}

PyObject* make_steps(const PlannedCall& plan) {
  GroupObject& group = plan.on();
  State& state = *group.state;
  const Clock::time_point began = Clock::now();
  const char* const site = site_of(group);  // before the arrays: this may run Python code
  // Checks the first step last, just before it runs, because checking a step may run code that
  // changes the arrays of another.
  for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
    if (!step->arrays.are_the_same(state)) return nullptr;
  }
  PyObject* result = nullptr;
  for (const PlannedStep& step : plan.steps) {
    const bool first = result == nullptr;
    Py_XDECREF(result);
    if (!first && !step.arrays.are_the_same(state)) return nullptr;  // other code may have run meanwhile
    result = make_step(step, group, site, began);
    if (result != nullptr) continue;
    if (plan.words != nullptr) add_words(state, plan.words->get());
    return nullptr;
  }
  return result;
}

PyObject* make(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Ref alive(Py_NewRef(self));  // keeps this object while other code runs
    if (planned_of(self).plan == nullptr)
      return PyErr_Format(PyExc_ReferenceError, "this PlannedCall has been collected with its arrays");
    const PlannedCall& plan = *planned_of(self).plan;
    if (usable(plan.on()) == nullptr || !plan.x.are_the_same(*plan.on().state, "allreduce")) return nullptr;
    return plan.again != nullptr ? PyObject_CallNoArgs(plan.again->get()) : make_steps(plan);
  });
}

PyObject* planned_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) != 0 || (kwargs != nullptr && PyDict_GET_SIZE(kwargs) != 0))
    return PyErr_Format(PyExc_TypeError, "a PlannedCall takes no arguments: they were planned");
  return make(self, nullptr);
}

PyObject* planned_repr(PyObject*) { return PyUnicode_FromString("<pycollective.PlannedCall allreduce>"); }

int planned_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const PlannedCall* const plan = planned_of(self).plan;
  if (plan == nullptr) return 0;
  Py_VISIT(plan->group.get());
  for (const std::unique_ptr<Ref>* each : {&plan->in, &plan->out, &plan->again}) {
    if (*each != nullptr) Py_VISIT((*each)->get());
  }
  Py_VISIT(plan->x.kept());
  for (const PlannedStep& step : plan->steps) {
    if (const int stop = step.call->traverse(visit, arg); stop != 0) return stop;
  }
  return 0;
}

int planned_clear(PyObject* self) {
  delete std::exchange(planned_of(self).plan, nullptr);
  return 0;
}

void planned_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  planned_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

bool is_numpy(const State& state, PyObject* array) {
  return PyObject_TypeCheck(array, reinterpret_cast<PyTypeObject*>(state.ndarray)) != 0;
}

// Adds a step: a call on the blocks of one element type.
bool add_list(GroupObject& group, PyObject* arguments, PlannedCall& plan) {
  PlannedStep step = {std::make_unique<PreparedCall>(), {}};
  PreparedCall& call = *step.call;
  if (!prepare_list(group, PySequence_Fast_ITEMS(arguments), call)) return false;
  if (is_on_gpu(call))
    return refuse(*group.state, Code::kUnsupported,
                  "plan_allreduce: x lies on a GPU, and plans are for the CPU");
  call.result = PyList_GET_ITEM(plan.x.kept(), 0);
  for (const bool numpy : {false, true}) {
    for (std::size_t i = 0; i < call.list->views().size(); ++i) {
      PyObject* const array = PyTuple_GET_ITEM(call.list->arrays(), static_cast<Py_ssize_t>(i));
      if (is_numpy(*group.state, array) != numpy) continue;
      const Buffer& buffer = call.list->views()[i].buffer();
      if (!step.arrays.add(*group.state, array, buffer, {"allreduce", "an array of x", true, false}))
        return false;
    }
  }
  plan.steps.push_back(std::move(step));
  return true;
}

}  // namespace

PyObject* plan_prepared(GroupObject& group, std::unique_ptr<PreparedCall> prepared) {
  State& state = *group.state;
  auto plan = std::make_unique<PlannedCall>(group);
  plan->in = share(prepared->arrays[0]);
  plan->out = share(prepared->arrays[1]);
  plan->steps.push_back({std::move(prepared), {}});
  const PreparedCall& call = *plan->steps[0].call;
  PlannedArrays& arrays = plan->steps[0].arrays;
  const bool in_place = call.written == &call.in_view, out_first = is_numpy(state, call.arrays[0]);
  const auto add_out = [&] {
    return in_place ||
           arrays.add(state, call.arrays[1], call.out_view.buffer(), {"allreduce", "out", true, false});
  };
  if (out_first && !add_out()) return nullptr;
  if (!arrays.add(state, call.arrays[0], call.in_view.buffer(), {"allreduce", "x", in_place, false}))
    return nullptr;
  if (!out_first && !add_out()) return nullptr;
  return new_planned(state, std::move(plan));
}

PyObject* plan_lists(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 3 || kwnames != nullptr || !PyList_Check(args[0]) || !PyUnicode_Check(args[2]))
    return PyErr_Format(PyExc_TypeError, "_plan_lists() takes a list, an object and a text by position");
  auto plan = std::make_unique<PlannedCall>(group);
  plan->words = share(args[2]);
  if (!plan->x.take(args[1])) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); ++i) {
    PyObject* const arguments = PyList_GET_ITEM(args[0], i);
    if (!PyTuple_Check(arguments) || PyTuple_GET_SIZE(arguments) != 8)
      return PyErr_Format(PyExc_TypeError, "_plan_lists(): a call has eight arguments");
    if (!add_list(group, arguments, *plan)) return nullptr;
  }
  return new_planned(*group.state, std::move(plan));
}

PyObject* plan_staged(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs != 2 || kwnames != nullptr || PyCallable_Check(args[0]) == 0)
    return PyErr_Format(PyExc_TypeError, "_plan_staged() takes a callable and an object by position");
  auto plan = std::make_unique<PlannedCall>(group);
  plan->again = share(args[0]);
  if (!plan->x.take(args[1])) return nullptr;
  return new_planned(*group.state, std::move(plan));
}

bool add_planned_call(PyObject* module, State* state) {
  static PyMethodDef methods[] = {
      {"__call__", make, METH_NOARGS | METH_COEXIST, docs::kPlannedMake},  // gives inspect a signature
      {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, docs::kPlannedClassGetItem},
      {},
  };
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(planned_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(planned_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(planned_clear)},
      {Py_tp_call, reinterpret_cast<void*>(planned_call)},
      {Py_tp_repr, reinterpret_cast<void*>(planned_repr)},
      {Py_tp_methods, methods},
      {Py_tp_doc, const_cast<char*>(docs::kPlannedCall)},
      {0, nullptr},
  };
  PyType_Spec spec = {"pycollective.PlannedCall", static_cast<int>(sizeof(PlannedObject)), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  state->planned_type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return state->planned_type != nullptr &&
         PyModule_AddObjectRef(module, "PlannedCall", reinterpret_cast<PyObject*>(state->planned_type)) == 0;
}

}  // namespace pc
