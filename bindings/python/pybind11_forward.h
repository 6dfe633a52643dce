// Forward declarations of pybind11's types for headers: each file that includes pybind11 costs
// seconds of compilation.
#pragma once

namespace pybind11 {
class module_;
class object;
}  // namespace pybind11
