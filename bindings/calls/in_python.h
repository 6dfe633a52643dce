// Calls implemented in Python. The first of them imports the module.
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/state/group_object.h"

namespace pc {

// Calls `function` of `module` with the group before the other arguments. Returns nullptr with a
// Python error set.
PyObject* in_python(const char* module, const char* function, GroupObject& group, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames);

// Makes the call by pycollective/calls/packing.py instead of the core. Passes every parameter by
// name, and the default for each omitted one.
PyObject* staged(GroupObject& group, const Signature& signature, const Given& given);

}  // namespace pc
