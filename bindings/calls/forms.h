// The forms in which a call is made: it is waited for, goes on in the background, or is planned to be made again and again.
#pragma once

#include "bindings/calls/call_row.h"
#include "bindings/calls/in_python.h"
#include "bindings/calls/run_prepared.h"
#include "bindings/calls/running_call.h"

namespace pc {

// Inline, so that each row of the table gets code of its own: 20 ns of a call that takes 130.
[[gnu::always_inline]] inline bool prepare(GroupObject& group, const CallRow& row, Form form,
                                           const Signature& signature, const Arguments& arguments,
                                           Given& given, PreparedCall& call) {
  if (!parse(*group.state, signature, arguments, given)) return false;
  call.function = signature.function;
  // Before the arrays are looked at, which may run Python code.
  call.request.site = row.is_message ? group.state->sites.here() : site_of(group);
  return row.prepare(group, given, form, call);
}

inline bool is_stageable(const PreparedCall& call) {
  return call.is_staged || call.in_view.stageable() || call.out_view.stageable();
}

// nullptr: a Python error is set.
[[gnu::always_inline]] inline PyObject* make_blocking(GroupObject& group, const CallRow& row,
                                                      const Arguments& arguments) {
  Given given;
  PreparedCall call;
  if (prepare(group, row, Form::kBlocking, row.signature, arguments, given, call))
    return run_prepared(group, call);
  return is_stageable(call) ? staged(group, row.signature, given) : nullptr;
}
PyObject* make_async(GroupObject& group, const CallRow& row, const Arguments& arguments);    // a Work
PyObject* make_planned(GroupObject& group, const CallRow& row, const Arguments& arguments);  // a PlannedCall

}  // namespace pc
