// Status -> Python exception: the only place where an error of the core becomes one.
#pragma once

#include <string>

#include "comm/runtime.h"
#include "state.h"

namespace pc {

// Sets the Python error that `status` stands for. A Python error that is already set (Ctrl-C, a signal handler's
// exception) stays. Always returns nullptr, so that a binding can return it.
// `process`: of the peer, if it is known.
PyObject* raise_status(const State& state, const Status& status, const HostMap::Entry* process = nullptr);

// The caller's fault, found before anything was sent. Always returns false.
bool refuse(const State& state, std::string message);
bool refuse(const State& state, Code code, std::string message);

// Forget the pending Python error, unless it is Ctrl-C or the like (no Exception): that stays pending, false is returned, and
// a later raise_status() or refuse() leaves it alone.
bool clear_python_error();
// Likewise, and returns the error's text, first line only.
std::string take_python_error();

}  // namespace pc
