#include "bindings/state/errors.h"

#include <pybind11/pybind11.h>

#include <new>

#include "bindings/python/ref.h"

namespace py = pybind11;

namespace pc {
namespace {

PyObject* none() { return Py_NewRef(Py_None); }
PyObject* number(Rank rank) { return rank < 0 ? none() : PyLong_FromLong(rank); }
PyObject* seconds(double value) { return value < 0 ? none() : PyFloat_FromDouble(value); }
// Decodes with "replace", because a message may quote arbitrary bytes.
PyObject* text(const std::string& value) {
  return PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace");
}

PyObject* optional(const std::string& value) { return value.empty() ? none() : text(value); }
// Returns additional advice for the message of a collective that some ranks did not make. The
// advice comes from Python code, because it reads source files.
std::string advice(const Status& status, const std::string& message) {
  const bool apart = status.code() == Code::kTimeout || status.code() == Code::kMismatch;
  if (!apart || status.sequence() == 0) return {};
  const Ref module(PyImport_ImportModule("pycollective.calls.rank_conditions"));
  const Ref known(text(message));
  const Ref more(module && known ? PyObject_CallMethod(module.get(), "advice", "O", known.get()) : nullptr);
  const char* utf8 = more ? PyUnicode_AsUTF8(more.get()) : nullptr;
  std::string text_of = utf8 == nullptr ? "" : utf8;
  (void)clear_python_error();  // an exception of the user, such as KeyboardInterrupt, remains
  return text_of;
}

bool is_about_a_peer(Code code) {
  return code == Code::kPeerFailure || code == Code::kPeerExited || code == Code::kPeerInterrupted;
}

}  // namespace

PyObject* raise_status(const State& state, const Status& status, const HostMap::Entry* process) {
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (status.code() == Code::kInterrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return nullptr;
  }
  PyObject* const kind = state.errors[static_cast<std::size_t>(status.code())];
  std::string full_text = status.to_string();
  full_text += advice(status, full_text);
  if (PyErr_Occurred() != nullptr) return nullptr;
  const Ref message(text(full_text)), rank(number(status.rank())), peer(number(status.peer()));
  const Ref operation(optional(status.operation())), elapsed(seconds(status.elapsed_s()));
  const Ref sequence(status.sequence() == 0 ? none() : PyLong_FromUnsignedLongLong(status.sequence()));
  if (!message || !rank || !peer || !operation || !elapsed || !sequence) return nullptr;
  const Ref details(Py_BuildValue("{sOsOsOsOsO}", "rank", rank.get(), "peer", peer.get(), "operation",
                                  operation.get(), "elapsed_s", elapsed.get(), "sequence", sequence.get()));
  const Ref positional(PyTuple_Pack(1, message.get()));
  if (!details || !positional) return nullptr;
  if (is_about_a_peer(status.code())) {
    const Ref host(process == nullptr ? none() : text(process->host_name));
    const Ref pid(process == nullptr ? none() : PyLong_FromLongLong(process->pid));
    const Ref cause(optional(status.cause()));
    if (!host || !pid || !cause || PyDict_SetItemString(details.get(), "host", host.get()) != 0 ||
        PyDict_SetItemString(details.get(), "pid", pid.get()) != 0 ||
        PyDict_SetItemString(details.get(), "cause", cause.get()) != 0) {
      return nullptr;
    }
  }
  const Ref error(PyObject_Call(kind, positional.get(), details.get()));
  if (error) PyErr_SetObject(kind, error.get());
  return nullptr;
}

bool refuse(const State& state, Code code, std::string message) {
  raise_status(state, Status(code, std::move(message)));
  return false;
}

bool refuse(const State& state, std::string message) {
  return refuse(state, Code::kInvalidArgument, std::move(message));
}

void refuse_and_throw(const State& state, std::string message) {
  refuse(state, std::move(message));
  throw py::error_already_set();
}

void throw_unless_ok(const State& state, const Status& status) {
  if (status.is_ok() && PyErr_Occurred() == nullptr) return;
  if (!status.is_ok()) raise_status(state, status);
  throw py::error_already_set();
}

PyObject* raise_caught(std::exception& caught) {
  if (auto* const python_error = dynamic_cast<py::error_already_set*>(&caught))
    python_error->restore();
  else if (dynamic_cast<std::bad_alloc*>(&caught) != nullptr)
    PyErr_NoMemory();
  else
    PyErr_SetString(PyExc_RuntimeError, caught.what());
  return nullptr;
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
  clear_python_error();  // the error of __str__
  for (PyObject* object : {type, value, traceback, shown, utf8}) Py_XDECREF(object);
  return text.substr(0, text.find('\n'));
}

}  // namespace pc
