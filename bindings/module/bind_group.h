// The Python class Group, and the module's functions that act on the current world.
#pragma once

#include "bindings/state/state.h"

namespace pc {

// Creates Group and adds it and the functions to the module. `state` lives as long as the process.
// Returns false with a Python error set.
bool add_group(PyObject* module, State* state);

}  // namespace pc
