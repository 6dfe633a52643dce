#include "bindings/module/bind_kernels.h"

#include <pybind11/pybind11.h>

#include "bindings/arrays/view.h"
#include "bindings/calls/arguments.h"
#include "bindings/state/errors.h"
#include "comm/arguments.h"
#include "kernels/reduce.h"

namespace py = pybind11;

namespace pc {
namespace {

// Computes out = a (op) b for three contiguous arrays of the same length and dtype. `out` may be
// `a`. benchmarks/kernels.py repeats the kernel `calls` times, because on small arrays the code
// around the kernel takes longer than the kernel.
void combine(State& state, const py::object& out, const py::object& a, const py::object& b,
             const py::object& op, int calls) {
  constexpr const char* kName = "_combine";
  View out_view, a_view, b_view;
  Reduction how;
  if (!to_op(state, kName, op.ptr(), &how) || !out_view.take(state, out.ptr(), {kName, "out", true, true}) ||
      !a_view.take(state, a.ptr(), {kName, "a", false, true}) ||
      !b_view.take(state, b.ptr(), {kName, "b", false, true})) {
    throw py::error_already_set();
  }
  const Buffer &to = out_view.buffer(), &x = a_view.buffer(), &y = b_view.buffer();
  const bool alike = to.count == x.count && x.count == y.count && to.dtype == x.dtype && x.dtype == y.dtype;
  if (!alike || !can_reduce(x.dtype, how)) {
    refuse(state, Code::kUnsupported,
           "_combine: cannot reduce " + std::string(name_of(x.dtype)) + " with " + std::string(name_of(how)) +
               ", or the arrays differ");
    throw py::error_already_set();
  }
  const py::gil_scoped_release release;
  for (int i = 0; i < calls; ++i) reduce(to.data, x.data, y.data, x.count, x.dtype, how);
}

// Refuses arguments that every call refuses, with the same message as a call.
void check(State& state, const std::string& function, const std::string& argument, const py::object& x,
           const py::object& op) {
  View view;
  Reduction how;
  const Use use = {function.c_str(), argument.c_str(), false, true, true};
  if (!view.take(state, x.ptr(), use) ||
      (!op.is_none() && (!to_op(state, use.function, op.ptr(), &how) || !view.fits(state, how.op, use)))) {
    throw py::error_already_set();
  }
  const Status status = op.is_none() ? Status::ok() : check_reduction(view.buffer(), how);
  if (status.is_ok()) return;
  refuse(state, status.code(), function + ": " + argument + ": " + status.message());
  throw py::error_already_set();
}

}  // namespace

void bind_kernels(py::module_& m, State* state) {
  m.def(
      "_combine",
      [state](const py::object& out, const py::object& a, const py::object& b, const py::object& op,
              int calls) { combine(*state, out, a, b, op, calls); },
      py::arg("out"), py::arg("a"), py::arg("b"), py::arg("op"), py::arg("calls") = 1);
  m.def(
      "_check",
      [state](const std::string& function, const std::string& argument, const py::object& x,
              const py::object& op) { check(*state, function, argument, x, op); },
      py::arg("function"), py::arg("argument"), py::arg("x"), py::arg("op"));
}

}  // namespace pc
