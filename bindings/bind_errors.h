// Status -> Python exception: the only place where an error of the core becomes one.
#pragma once

#include <string>

#include "state.h"

namespace pc {

// Sets the Python error that `status` stands for. A Python error that is already set (Ctrl-C, a signal handler's
// exception) stays. Always returns nullptr, so that a binding can return it.
PyObject* raise_status(const State& state, const Status& status);

// The caller's fault, found before anything was sent. Always returns false.
bool refuse(const State& state, std::string message);
bool refuse(const State& state, Code code, std::string message);

// Text of the pending Python error, first line only; clears it.
std::string take_python_error();

}  // namespace pc
