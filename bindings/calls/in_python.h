// Calls whose work is done in Python, in a module that is imported by the first of them.
#pragma once

#include "bindings/calls/arguments.h"
#include "bindings/state/group_object.h"

namespace pc {

// `function` of pycollective.`module`, called with the group in front of the arguments. nullptr: a Python error is set.
PyObject* in_python(const char* module, const char* function, GroupObject& group, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames);

// The same call in pycollective/calls/packing.py, after a view has failed and is stageable. It is given every parameter by name, those that
// were left out as their defaults.
PyObject* staged(GroupObject& group, const Signature& signature, const Given& given);

}  // namespace pc
