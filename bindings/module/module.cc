// pycollective._core: everything of the core that Python uses.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/env.h"
#include "bindings/calls/bind_ops.h"
#include "bindings/calls/calls.h"
#include "bindings/calls/planned_call.h"
#include "bindings/calls/work.h"
#include "bindings/module/bind_debug.h"
#include "bindings/module/bind_gpu.h"
#include "bindings/module/bind_group.h"
#include "bindings/module/bind_heap.h"
#include "bindings/module/bind_info.h"
#include "bindings/module/bind_kernels.h"
#include "bindings/module/bind_plan.h"
#include "bindings/module/bind_runtime.h"
#include "bindings/module/bind_tune.h"
#include "bindings/python/ended_calls.h"
#include "bindings/state/errors.h"
#include "kernels/dtypes_page.h"
#include "kernels/reduce.h"

namespace py = pybind11;

namespace {

// Sets the group that the module's functions act on from now on.
void set_world(pc::State& state, const py::object& group) {
  pc::GroupObject* next = nullptr;
  if (!group.is_none()) {
    if (!pc::is_group(state, group.ptr())) throw py::type_error("the world must be a Group or None");
    next = reinterpret_cast<pc::GroupObject*>(group.inc_ref().ptr());
  }
  PyObject* previous = reinterpret_cast<PyObject*>(std::exchange(state.world, next));
  Py_XDECREF(previous);
}

py::object world(const pc::State& state) {
  PyObject* group = pc::current_world(state);
  if (group == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(group);
}

py::object time_calls(const pc::State& state, const py::object& group, const py::object& array,
                      int64_t count) {
  if (!pc::is_group(state, group.ptr())) throw py::type_error("group must be a Group");
  PyObject* seconds = pc::time_calls(*reinterpret_cast<pc::GroupObject*>(group.ptr()), array.ptr(), count);
  if (seconds == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(seconds);
}

// Replaces in a forked child the state that belongs to the parent.
void after_fork(pc::State& state) {
  state.ended_calls = new pc::EndedCalls();
  // The old object is leaked, because its threads exist only in the parent.
  state.position = new pc::ProgramPosition(state.sites);
  state.alone.clear();
  // A child must not keep the parent's connections open: its peers would not detect the parent's
  // death.
  for (const std::weak_ptr<pc::Runtime>& each : std::exchange(state.runtimes, {})) {
    auto* const runtime =
        new std::shared_ptr<pc::Runtime>(each.lock());  // leaked: its threads exist only in the parent
    if (*runtime != nullptr) (*runtime)->close_in_child();
  }
  for (const std::weak_ptr<pc::Session>& each : std::exchange(state.sessions, {})) {
    const std::shared_ptr<pc::Session> session = each.lock();
    if (session == nullptr) continue;
    session->forked = true;
    if (session->store != nullptr) session->store->close_in_child();
    if (session->server != nullptr) session->server->close_in_child();
  }
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.doc() =
      "The C++ core of pycollective. Use it through the package: this module may change without notice.";
  // Lives as long as the process, because functions of the module may outlive it.
  pc::State* state = new pc::State();
  state->ended_calls = new pc::EndedCalls();
  if (!state->load() || !pc::add_work(m.ptr(), state) || !pc::add_planned_call(m.ptr(), state) ||
      !pc::add_group(m.ptr(), state)) {
    throw py::error_already_set();
  }
  pc::bind_runtime(m, state);
  pc::bind_heap(m, state);
  pc::bind_gpu(m);
  pc::bind_info(m, state);
  pc::bind_debug(m, state);
  pc::bind_ops(m, state);
  pc::bind_kernels(m, state);
  pc::bind_plan(m, state);
  pc::bind_tune(m, state);
  m.attr("ANY_SOURCE") = pc::kAnyRank;
  m.def(
      "_set_world", [state](const py::object& group) { set_world(*state, group); }, py::arg("group"));
  m.def(
      "world", [state] { return world(*state); },
      R"(The group of the last init(). Raises NotInitialized before it and after shutdown().

Example:
    >>> import pycollective as pc
    >>> pc.init() is pc.world()
    True
    >>> pc.shutdown()
)");
  m.def(
      "_begin_alone",
      [state](std::string what) { state->alone.emplace_back(PyThread_get_thread_ident(), std::move(what)); },
      py::arg("what"),
      "Until _end_alone() this thread runs code that other ranks do not run: its calls on several ranks "
      "are refused.");
  m.def("_end_alone", [state] {
    const auto mine = std::find_if(state->alone.rbegin(), state->alone.rend(), [](const auto& each) {
      return each.first == PyThread_get_thread_ident();
    });
    if (mine != state->alone.rend()) state->alone.erase(std::next(mine).base());
  });
  m.def("_after_fork", [state] { after_fork(*state); });
  m.def(
      "_time_calls",
      [state](const py::object& group, const py::object& x, int64_t count) {
        return time_calls(*state, group, x, count);
      },
      py::arg("group"), py::arg("x"), py::arg("count"),
      "Seconds that `count` sums of `x` over the group take in C++ only.");
  m.def("environment_markdown", &pc::environment_markdown, "The text of docs/environment.md.");
  m.def("dtypes_markdown", &pc::dtypes_markdown, "The text of docs/dtypes.md.");
  m.def(
      "reduce_target", [] { return std::string(pc::reduce_target()); },
      "The instruction set that reductions use on this machine.");
}
