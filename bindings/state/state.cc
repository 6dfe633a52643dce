#include "bindings/state/state.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace pc {
namespace {

constexpr std::array<const char*, kNameCount> kNames = {
    "x",           "op",   "out",          "timeout", "root",   "peer",        "tag", "counts",
    "recv_counts", "axis", "reproducible", "dest",    "source", "with_source", "host"};

struct ErrorRow {
  Code code;
  const char* name;
};
constexpr ErrorRow kErrors[] = {
    {Code::kInvalidArgument, "InvalidArgument"},
    {Code::kMismatch, "CollectiveMismatch"},
    {Code::kTimeout, "CollectiveTimeout"},
    {Code::kPeerFailure, "PeerFailure"},
    {Code::kPeerExited, "PeerExited"},
    {Code::kPeerInterrupted, "PeerInterrupted"},
    {Code::kAborted, "Aborted"},
    {Code::kUnsupported, "Unsupported"},
    {Code::kExcluded, "Excluded"},
    {Code::kNotInitialized, "NotInitialized"},
};

PyObject* intern(std::string_view text) {
  PyObject* name = PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  if (name == nullptr) throw py::error_already_set();
  PyUnicode_InternInPlace(&name);
  return name;
}

}  // namespace

std::string_view text_of(Name name) { return kNames[name]; }

bool State::load() {
  try {
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = intern(kNames[i]);
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = intern(name_of(static_cast<ReduceOp>(i)));
    requires_grad = intern("requires_grad");
    is_leaf = intern("is_leaf");
    stop_gradient = intern("stop_gradient");
    const py::module_ module = py::module_::import("pycollective.errors");
    for (PyObject*& error : errors) error = py::object(module.attr("CollectiveError")).release().ptr();
    for (const ErrorRow& row : kErrors) {
      errors[static_cast<std::size_t>(row.code)] = py::object(module.attr(row.name)).release().ptr();
    }
    forked_error = py::object(module.attr("ForkedProcess")).release().ptr();
    ndarray = py::object(py::module_::import("numpy").attr("ndarray")).release().ptr();
    numpy_empty = py::object(py::module_::import("numpy").attr("empty")).release().ptr();
    return sites.load();
  } catch (py::error_already_set& e) {
    e.restore();
    return false;
  }
}

}  // namespace pc
