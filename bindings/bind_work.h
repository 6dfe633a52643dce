// The Python class Work: what the calls that do not wait return.
#pragma once

#include "state.h"

namespace pc {

// Makes Work and adds it to the module. False: a Python error is set.
bool add_work(PyObject* module, State* state);

}  // namespace pc
