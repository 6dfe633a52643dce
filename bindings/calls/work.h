// The Python class Work: what the calls that do not wait return.
#pragma once

#include <memory>

#include "bindings/calls/prepared_call.h"
#include "bindings/state/group_object.h"

namespace pc {

// Makes Work and adds it to the module. False: a Python error is set.
bool add_work(PyObject* module, State* state);

// Starts the call and hands its Work over. nullptr: a Python error is set.
PyObject* launch_prepared(GroupObject& group, std::unique_ptr<PreparedCall> call);

}  // namespace pc
