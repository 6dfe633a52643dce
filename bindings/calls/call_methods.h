// The methods and functions that the table of calls makes.
#pragma once

#include <Python.h>

#include <vector>

namespace pc {

// The object that the functions of the module are bound to: they act on the current world.
struct State;
struct WorldObject {
  PyObject ob_base;
  State* state;
};

// Their docstrings live as long as the process, as CPython needs them.
void add_group_calls(std::vector<PyMethodDef>& methods);
void add_world_calls(std::vector<PyMethodDef>& methods);

}  // namespace pc
