#include "call_site.h"

#include <frameobject.h>

#include "ref.h"

namespace pc {
namespace {

int instruction_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

PyCodeObject* code_of(PyFrameObject* frame) {  // borrowed: the frame holds it
  PyCodeObject* code = PyFrame_GetCode(frame);
  Py_DECREF(code);
  return code;
}

// Names of files need not be Unicode. Leaves no Python error behind.
std::string to_utf8(PyObject* text) {
  const Ref bytes(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  if (bytes) return std::string(PyBytes_AS_STRING(bytes.get()));
  PyErr_Clear();
  return "?";
}

// The last two parts: short, and mostly enough to know the file.
std::string short_path(const std::string& path) {
  const std::size_t name = path.rfind('/');
  if (name == std::string::npos || name == 0) return path;
  const std::size_t folder = path.rfind('/', name - 1);
  return folder == std::string::npos ? path : path.substr(folder + 1);
}

}  // namespace

bool CallSites::load() {
  const Ref package(PyImport_ImportModule("pycollective"));
  if (!package) return false;
  const Ref path(PyObject_GetAttrString(package.get(), "__path__"));
  if (!path) return false;
  const Ref first(PySequence_GetItem(path.get(), 0));
  if (!first) return false;
  folder_ = PyUnicode_FromFormat("%S/", first.get());
  return folder_ != nullptr;
}

bool CallSites::is_ours(PyCodeObject* code) const {
  const Py_ssize_t ours = PyUnicode_Tailmatch(code->co_filename, folder_, 0, PY_SSIZE_T_MAX, -1);
  if (ours < 0) PyErr_Clear();
  return ours > 0;
}

const char* CallSites::here() {
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  if (frame == nullptr) return nullptr;
  const Place place = {code_of(frame), instruction_of(frame)};
  const auto known = places_.find(place);
  const char* text = known != places_.end() ? known->second : find_out(frame, place);
  last_.store(text, std::memory_order_relaxed);
  return text;
}

// Python code may run in here (finalizers do), and come here as well.
const char* CallSites::find_out(PyFrameObject* frame, const Place& place) {
  std::string fresh = text_of(frame);
  const bool full = texts_.size() >= kMostTexts && !texts_.contains(fresh);
  const char* text = full ? "one of many places" : texts_.insert(std::move(fresh)).first->c_str();
  if (is_ours(place.code)) return text;  // which depends on who called us
  if (places_.size() >= kMostPlaces) forget();
  if (places_.emplace(place, text).second) Py_INCREF(place.code);
  return text;
}

void CallSites::forget() {
  Places gone;
  gone.swap(places_);  // first: the end of a code object may run Python code that comes here
  for (const auto& [place, text] : gone) Py_DECREF(place.code);
}

std::string CallSites::text_of(PyFrameObject* innermost) const {
  PyFrameObject* frame = innermost;
  Py_INCREF(frame);
  while (frame != nullptr && is_ours(code_of(frame))) {
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  const Ref held(reinterpret_cast<PyObject*>(frame));
  if (frame == nullptr) frame = innermost;
  const PyCodeObject* code = code_of(frame);
  return short_path(to_utf8(code->co_filename)) + ":" + std::to_string(PyFrame_GetLineNumber(frame)) +
         " in " + to_utf8(code->co_name);
}

}  // namespace pc
