// The methods and functions that are generated from the table of calls.
#pragma once

#include <Python.h>

#include <vector>

namespace pc {

// The object that the module's functions are bound to. They act on the current world.
struct State;
struct WorldObject {
  PyObject ob_base;
  State* state;
};

// Append the methods of Group and of the world object. Their docstrings live as long as the
// process, because CPython keeps pointers to them.
void add_group_calls(std::vector<PyMethodDef>& methods);
void add_world_calls(std::vector<PyMethodDef>& methods);

}  // namespace pc
