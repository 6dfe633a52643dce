// Finds the instruction that this thread executes, and its code object.
#pragma once

#include <Python.h>
#include <frameobject.h>

#include <cstddef>

namespace pc {

struct CodePlace {
  PyCodeObject* code = nullptr;  // Borrowed: the running frame holds it. nullptr if no Python code runs.
  int instruction = 0;           // as frame.f_lasti
  bool operator==(const CodePlace&) const = default;
};

CodePlace place_of(PyFrameObject* frame);
inline CodePlace running_place() {
  PyFrameObject* const frame = PyEval_GetFrame();  // borrowed
  return frame == nullptr ? CodePlace() : place_of(frame);
}

// Returns the result of running_place() without creating a frame object. Since Python 3.11 running
// code has no frame object, and creating one takes several times as long as the lookup.
//
// The result may be wrong where the interpreter clears a frame that C code called, so compare an
// unknown place with running_place(). Use this function only if running_place_is_known(): it
// compares both functions once, because an interpreter of the same version may be built
// differently.
CodePlace running_place_directly();
bool running_place_is_known();

}  // namespace pc
