// pybind11's types by name, for headers: the headers of pybind11 cost each file that sees them seconds of compilation.
#pragma once

namespace pybind11 {
class module_;
class object;
}  // namespace pybind11
