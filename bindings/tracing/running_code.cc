#include "bindings/tracing/running_code.h"

namespace pc {
namespace {

int instruction_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
// The first members of CPython 3.11's _PyInterpreterFrame (Include/internal/pycore_frame.h). Later
// versions have functions for this.
struct InterpreterFrame {
  void *function, *globals, *builtins, *locals;
  PyCodeObject* code;
  void *frame_object, *previous;
  const char* instruction;
};
#endif

}  // namespace

CodePlace place_of(PyFrameObject* frame) {
  PyCodeObject* const code = PyFrame_GetCode(frame);
  Py_DECREF(code);  // the frame holds a reference
  return {code, instruction_of(frame)};
}

CodePlace running_place_directly() {
#if PY_VERSION_HEX < 0x030B0000 || defined(PYPY_VERSION)
  return running_place();
#elif PY_VERSION_HEX < 0x030C0000
  const auto* const frame =
      reinterpret_cast<const InterpreterFrame*>(PyThreadState_Get()->cframe->current_frame);
  if (frame == nullptr) return {};
  return {frame->code, static_cast<int>(frame->instruction - frame->code->co_code_adaptive)};
#else
#if PY_VERSION_HEX < 0x030D0000
  _PyInterpreterFrame* const frame = PyThreadState_Get()->cframe->current_frame;
#else
  _PyInterpreterFrame* const frame = PyThreadState_Get()->current_frame;
#endif
  if (frame == nullptr) return {};
  PyObject* const code = PyUnstable_InterpreterFrame_GetCode(frame);
  Py_DECREF(code);  // the frame holds a reference
  if (!PyCode_Check(code)) return {};
  return {reinterpret_cast<PyCodeObject*>(code), PyUnstable_InterpreterFrame_GetLasti(frame)};
#endif
}

bool running_place_is_known() { return running_place_directly() == running_place(); }

}  // namespace pc
