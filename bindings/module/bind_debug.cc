#include "bindings/module/bind_debug.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "base/clock.h"
#include "bindings/python/end_signal.h"
#include "bindings/python/exit_code.h"
#include "bindings/state/group_object.h"
#include "engine/flight_text.h"

namespace py = pybind11;

namespace pc {
namespace {

// Returns the record of the current world. Without a world nothing is recorded.
std::string flight_record(const State& state) {
  const GroupObject* const world = state.world;
  if (world == nullptr || world->session->runtime == nullptr) return "[]";
  return json_of(world->session->runtime->last_calls(), now_ns());
}

// Returns the position, found in the way that a thread without the GIL finds it. Returns None on
// timeout.
py::object program_position(const State& state, double timeout_s) {
  const auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> position = answer->get_future();
  state.position->find([answer](std::string text) { answer->set_value(std::move(text)); });
  if (timeout_s > 0) {
    PyThreadState* thread = PyEval_SaveThread();
    position.wait_for(std::chrono::duration<double>(timeout_s));
    PyEval_RestoreThread(thread);
  }
  if (position.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return py::none();
  return py::str(position.get());
}

}  // namespace

void bind_debug(py::module_& module, State* state) {
  module.def("_seconds_since_end_signal", seconds_since_end_signal,
             "Seconds since the last signal that requests the end; None if none since the first world.");
  module.def("_fail_at_exit", fail_at_exit,
             "Makes this process exit with 1 even if its program ends normally.");
  module.def(
      "_flight_record", [state] { return flight_record(*state); },
      "The last calls of this rank as JSON: what pycollective.debug.dump() reads.");
  module.def(
      "_program_position", [state](double timeout_s) { return program_position(*state, timeout_s); },
      py::arg("timeout_s"), "Private, for tests: the position of the main thread, found without the GIL.");
  // Closed by atexit, because other threads can still get the GIL at that time.
  py::module_::import("atexit").attr("register")(py::cpp_function([state] { state->position->close(); }));
}

}  // namespace pc
