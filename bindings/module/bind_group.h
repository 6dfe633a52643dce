// The Python class Group, and the calls of the module that act on the current world.
#pragma once

#include "bindings/state/state.h"

namespace pc {

// Makes Group and adds it and the calls to the module. False: a Python error is set. `state` lives as long as the process.
bool add_group(PyObject* module, State* state);

}  // namespace pc
