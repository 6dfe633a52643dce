// Status -> Python exception: the only place where an error of the core becomes one.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "bindings/state/state.h"
#include "comm/runtime.h"

namespace pc {

// Sets the Python error that `status` stands for. A Python error that is already set (Ctrl-C, a signal handler's
// exception) stays. Always returns nullptr, so that a binding can return it.
// `process`: of the peer, if it is known.
PyObject* raise_status(const State& state, const Status& status, const HostMap::Entry* process = nullptr);

// The caller's fault, found before anything was sent. Always returns false.
bool refuse(const State& state, std::string message);
bool refuse(const State& state, Code code, std::string message);

// The same for functions that pybind11 calls: they throw.
[[noreturn]] void refuse_and_throw(const State& state, std::string message);
// Nothing if `status` is ok and no Python error is set, such as one of a signal handler while the GIL was away.
void throw_unless_ok(const State& state, const Status& status);
template <class T>
T value_or_throw(const State& state, Result<T> result) {
  throw_unless_ok(state, result.status());
  return std::move(result).value();
}
// Sets the Python error that an exception of C++ stands for. Always returns nullptr.
PyObject* raise_caught(std::exception& caught);

// Forget the pending Python error, unless it is Ctrl-C or the like (no Exception): that stays pending, false is returned, and
// a later raise_status() or refuse() leaves it alone.
bool clear_python_error();
// Likewise, and returns the error's text, first line only.
std::string take_python_error();

}  // namespace pc
