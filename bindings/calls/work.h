// The Python class Work: the result of a call that does not wait.
#pragma once

#include <memory>

#include "bindings/calls/prepared_call.h"
#include "bindings/state/group_object.h"

namespace pc {

// Creates Work and adds it to the module. Returns false with a Python error set.
bool add_work(PyObject* module, State* state);

// Starts the call and returns its Work. Returns nullptr with a Python error set.
PyObject* launch_prepared(GroupObject& group, std::unique_ptr<PreparedCall> call);

}  // namespace pc
