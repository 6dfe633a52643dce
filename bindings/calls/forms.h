// The forms of a call: blocking, in the background, or planned for repeated execution.
#pragma once

#include "bindings/calls/call_row.h"

namespace pc {

// Each returns nullptr with a Python error set.
PyObject* make_blocking(GroupObject& group, const CallRow& row, const Arguments& arguments);
PyObject* make_async(GroupObject& group, const CallRow& row, const Arguments& arguments);  // returns a Work
// Returns a PlannedCall.
PyObject* make_planned(GroupObject& group, const CallRow& row, const Arguments& arguments);

}  // namespace pc
