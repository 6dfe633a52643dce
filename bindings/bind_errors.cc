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

bool clear_python_error() {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  PyErr_Clear();
  return true;
}

std::string take_python_error() {
  if (PyErr_Occurred() == nullptr || PyErr_ExceptionMatches(PyExc_Exception) == 0) return {};
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  std::string text = "an error without a text";
  PyObject* shown = value == nullptr ? nullptr : PyObject_Str(value);
  PyObject* utf8 = shown == nullptr ? nullptr : PyUnicode_AsEncodedString(shown, "utf-8", "replace");
  if (utf8 != nullptr) text = PyBytes_AS_STRING(utf8);
  clear_python_error();  // of __str__
  for (PyObject* object : {type, value, traceback, shown, utf8}) Py_XDECREF(object);
  return text.substr(0, text.find('\n'));
}

}  // namespace pc
