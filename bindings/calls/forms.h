// The forms in which a call is made: it is waited for, goes on in the background, or is planned to be made again and again.
#pragma once

#include "bindings/calls/call_row.h"

namespace pc {

// nullptr: a Python error is set.
PyObject* make_blocking(GroupObject& group, const CallRow& row, const Arguments& arguments);
PyObject* make_async(GroupObject& group, const CallRow& row, const Arguments& arguments);    // a Work
PyObject* make_planned(GroupObject& group, const CallRow& row, const Arguments& arguments);  // a PlannedCall

}  // namespace pc
