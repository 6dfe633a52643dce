#include "bind_errors.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace pc {
namespace {

py::object none_if_negative(Rank rank) {
  return rank < 0 ? py::object(py::none()) : py::object(py::int_(rank));
}

}  // namespace

PyObject* raise_status(const State& state, const Status& status) {
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (status.code() == Code::kInterrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return nullptr;
  }
  try {
    const py::handle kind = state.errors[static_cast<std::size_t>(status.code())];
    const py::object operation =
        status.operation().empty() ? py::object(py::none()) : py::str(status.operation());
    const py::object elapsed =
        status.elapsed_s() < 0 ? py::object(py::none()) : py::object(py::float_(status.elapsed_s()));
    // "replace": a message may quote bytes from elsewhere.
    const std::string text = status.to_string();
    const py::object message = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    const py::object error = kind(message, py::arg("rank") = none_if_negative(status.rank()),
                                  py::arg("peer") = none_if_negative(status.peer()),
                                  py::arg("operation") = operation, py::arg("elapsed_s") = elapsed);
    PyErr_SetObject(kind.ptr(), error.ptr());
  } catch (py::error_already_set& e) {
    e.restore();
  }
  return nullptr;
}

bool refuse(const State& state, Code code, std::string message) {
  raise_status(state, Status(code, std::move(message)));
  return false;
}

bool refuse(const State& state, std::string message) {
  return refuse(state, Code::kInvalidArgument, std::move(message));
}

std::string take_python_error() {
  std::string text;
  try {
    throw py::error_already_set();
  } catch (py::error_already_set& e) {
    text = py::str(e.value()).cast<std::string>();
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace pc
