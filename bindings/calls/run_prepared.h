// Runs a call with checked arguments, and waits for it.
#pragma once

#include "bindings/calls/prepared_call.h"

namespace pc {

// Returns nullptr with a Python error set.
PyObject* run_prepared(GroupObject& group, PreparedCall& call);

}  // namespace pc
