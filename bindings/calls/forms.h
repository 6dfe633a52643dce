// The forms in which a call is made whose arguments have been looked at: it is waited for, or goes on in the background.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "bindings/calls/in_python.h"
#include "bindings/calls/prepared_call.h"
#include "bindings/calls/work.h"
#include "bindings/state/errors.h"

namespace pc {

// nullptr: a Python error is set.
PyObject* run_prepared(GroupObject& group, PreparedCall& call);

// What has METH_FASTCALL | METH_KEYWORDS's arguments and makes a call of them. False: a Python error is set.
using Prepare = bool (*)(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                         PreparedCall& call);

template <Prepare prepare>
PyObject* blocking(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PreparedCall call;
  if (prepare(group, args, nargs, kwnames, call)) return run_prepared(group, call);
  const bool stageable = call.is_staged || call.in_view.stageable() || call.out_view.stageable();
  return stageable ? staged(call.function, group, args, nargs, kwnames) : nullptr;
}
template <Prepare prepare, bool takes_lists = false>
PyObject* in_background(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  auto call = std::make_unique<PreparedCall>();
  if (prepare(group, args, nargs, kwnames, *call)) return launch_prepared(group, std::move(call));
  if (call->is_staged) {
    refuse(*group.state,
           std::string(call->function) + ": reproducible=\"world\" waits: call it without _async");
  } else if (takes_lists && ((nargs > 0 && is_collection(args[0])) || call->in_view.is_immutable())) {
    return staged(call->function, group, args, nargs, kwnames);
  }
  return nullptr;
}

}  // namespace pc
