// Converts a Status to a Python exception. This is the only place where an error of the core
// becomes one.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "bindings/state/state.h"
#include "comm/runtime.h"

namespace pc {

// Sets the Python error for `status`. Keeps a Python error that is already set (Ctrl-C, a signal
// handler's exception). Always returns nullptr, so that a binding can return it. `process` is the
// process of the peer, or null if it is unknown.
PyObject* raise_status(const State& state, const Status& status, const HostMap::Entry* process = nullptr);

// Reports an error of the caller that was found before anything was sent. Always returns false.
bool refuse(const State& state, std::string message);
bool refuse(const State& state, Code code, std::string message);

// Like refuse(), for functions that pybind11 calls: throws instead of returning.
[[noreturn]] void refuse_and_throw(const State& state, std::string message);
// Throws unless `status` is ok and no Python error is set; a signal handler may have set one while
// the GIL was released.
void throw_unless_ok(const State& state, const Status& status);
template <class T>
T value_or_throw(const State& state, Result<T> result) {
  throw_unless_ok(state, result.status());
  return std::move(result).value();
}
// Sets the Python error for a C++ exception. Always returns nullptr.
PyObject* raise_caught(std::exception& caught);

// Clears the pending Python error and returns true. An error that is not an Exception (such as
// KeyboardInterrupt) stays pending instead: this returns false, and a later raise_status() or
// refuse() keeps the error.
bool clear_python_error();
// Clears the pending Python error in the same way and returns the first line of its text.
std::string take_python_error();

}  // namespace pc
