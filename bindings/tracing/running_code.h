// Which instruction of which code runs in this thread.
#pragma once

#include <Python.h>
#include <frameobject.h>

#include <cstddef>

namespace pc {

struct CodePlace {
  PyCodeObject* code = nullptr;  // borrowed: the running frame holds it. nullptr: no Python code runs
  int instruction = 0;           // as frame.f_lasti
  bool operator==(const CodePlace&) const = default;
};

CodePlace place_of(PyFrameObject* frame);
inline CodePlace running_place() {
  PyFrameObject* const frame = PyEval_GetFrame();  // borrowed
  return frame == nullptr ? CodePlace() : place_of(frame);
}

// The same without making a frame object, which running code has none of since Python 3.11: making one costs a call several
// times what looking does. It may be wrong where the interpreter clears a frame that C code called, so an unknown place has to
// be compared with running_place(). Only if running_place_is_known(), which compares the two ways once, in case an interpreter
// of the same version is built otherwise.
CodePlace running_place_directly();
bool running_place_is_known();

}  // namespace pc
