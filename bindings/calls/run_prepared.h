// Makes a call whose arguments have been looked at, and waits for it.
#pragma once

#include "bindings/calls/prepared_call.h"

namespace pc {

// nullptr: a Python error is set.
PyObject* run_prepared(GroupObject& group, PreparedCall& call);

}  // namespace pc
