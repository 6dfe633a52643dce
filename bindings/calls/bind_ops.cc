#include "bindings/calls/bind_ops.h"

#include <pybind11/pybind11.h>

#include <cmath>

#include "bindings/state/errors.h"

namespace py = pybind11;

namespace pc {
namespace {

Reduction scaled(const State& state, const std::string& op, py::handle factor) {
  if (op_from_name(op) != ReduceOp::kSum) {
    refuse_and_throw(state, "scaled: only \"sum\" can be scaled, not \"" + op +
                                "\": multiply the array before the call, or the result after it");
  }
  const double number = PyFloat_AsDouble(factor.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    throw py::type_error("scaled(): factor must be a real number, not " +
                         std::string(Py_TYPE(factor.ptr())->tp_name));
  }
  if (!std::isfinite(number))
    refuse_and_throw(state, "scaled: factor must be finite, not " + std::to_string(number));
  return {ReduceOp::kScaledSum, number};
}

std::string repr(const Reduction& scaled) {
  return "pycollective.scaled(\"sum\", " + std::string(py::repr(py::float_(scaled.factor))) + ")";
}

constexpr const char* kDoc = R"(The sum of every rank's array times `factor`, as an operation.

Parameters:
    op: "sum" (or "add"); nothing else can be scaled.
    factor: a finite real number, the same on all ranks.

Returns:
    An `op` for allreduce() and reduce(): an immutable object with the attributes `op` and `factor`.

The contribution of each rank is multiplied once, in the type in which the sum is computed
(docs/dtypes.md). The sum overflows only if the sum of the scaled numbers does, and needs no
additional pass over the array.

Raises:
    InvalidArgument: another op, or a factor that is infinite or NaN.

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
    >>> pc.allreduce(np.array([2.0, 6.0]), pc.scaled("sum", 0.5))
    array([1., 3.])
    >>> pc.shutdown()
)";

}  // namespace

void bind_ops(py::module_& m, State* state) {
  py::class_<Reduction> type(m, "Scaled", py::is_final(), "A sum with a factor. Made by scaled().");
  type.def_property_readonly("op", [](const Reduction&) { return "sum"; })
      .def_property_readonly("factor", [](const Reduction& self) { return self.factor; })
      .def("__repr__", &repr)
      .def("__hash__", [](const Reduction& self) { return py::hash(py::float_(self.factor)); })
      .def("__eq__",
           [](const Reduction& self, const py::object& other) -> py::object {
             if (!py::isinstance<Reduction>(other))
               return py::reinterpret_borrow<py::object>(Py_NotImplemented);
             return py::bool_(other.cast<const Reduction&>().factor == self.factor);
           })
      .def("__reduce__", [m](const Reduction& self) {
        return py::make_tuple(m.attr("scaled"), py::make_tuple("sum", self.factor));
      });
  state->scaled_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  m.def(
      "scaled",
      [state](const std::string& op, const py::object& factor) { return scaled(*state, op, factor); },
      py::arg("op"), py::arg("factor"), kDoc);
}

const Reduction* scaled_reduction(const State& state, PyObject* value) {
  return Py_TYPE(value) == state.scaled_type ? &py::handle(value).cast<const Reduction&>() : nullptr;
}

}  // namespace pc
