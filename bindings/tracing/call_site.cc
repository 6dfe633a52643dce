#include "bindings/tracing/call_site.h"

#include <frameobject.h>

#include <algorithm>

#include "bindings/python/ref.h"

namespace pc {
namespace {

// Converts any Python string: a file name need not be valid Unicode. Leaves no Python error set.
std::string to_utf8(PyObject* text) {
  const Ref bytes(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  if (bytes) return std::string(PyBytes_AS_STRING(bytes.get()));
  PyErr_Clear();
  return "?";
}

// Returns the folder's name and the file's name, which usually suffice to identify the file.
std::string short_path(const std::string& path) {
  const std::size_t name = path.rfind('/');
  if (name == std::string::npos || name == 0) return path;
  const std::size_t folder = path.rfind('/', name - 1);
  return folder == std::string::npos ? path : path.substr(folder + 1);
}

PyFrameObject* caller_of(PyFrameObject* frame) {  // consumes a reference and returns a new one
  PyFrameObject* caller = PyFrame_GetBack(frame);
  Py_DECREF(frame);
  return caller;
}

}  // namespace

bool CallSites::load() {
  const Ref package(PyImport_ImportModule("pycollective"));
  if (!package) return false;
  // Uses __file__, because __path__ may have several entries and this package's own need not be the
  // first.
  const Ref init(PyObject_GetAttrString(package.get(), "__file__"));
  if (!init) return false;
  const Py_ssize_t slash = PyUnicode_FindChar(init.get(), '/', 0, PyUnicode_GetLength(init.get()), -1);
  if (slash < -1) return false;
  folder_ = slash < 0 ? PyUnicode_FromString("pycollective/") : PyUnicode_Substring(init.get(), 0, slash + 1);
  if (folder_ == nullptr) return false;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    programs_[i] = PyUnicode_FromFormat("%U%s", folder_, kPrograms[i]);
    if (programs_[i] == nullptr) return false;
  }
  const Ref os(PyImport_ImportModule("os"));
  const Ref file(os ? PyObject_GetAttrString(os.get(), "__file__") : nullptr);
  if (file) library_ = to_utf8(file.get());
  PyErr_Clear();  // a frozen program may not have the file
  library_.erase(library_.rfind('/') + 1);
  direct_ = running_place_is_known();
  return true;
}

bool CallSites::is_passed(PyCodeObject* code, Passed passed) const {
  const auto begins_with = [code](PyObject* path) {
    const Py_ssize_t does = PyUnicode_Tailmatch(code->co_filename, path, 0, PY_SSIZE_T_MAX, -1);
    if (does < 0) PyErr_Clear();
    return does > 0;
  };
  if (passed == Passed::kOursAndTorch && torch_ != nullptr && begins_with(torch_)) return true;
  return begins_with(folder_) && std::none_of(programs_.begin(), programs_.end(), begins_with);
}

// Finds torch's folder if the program has imported torch; the import may come after that of
// pycollective, or never. Frames of torch are skipped, because torch calls pycollective (its
// backend, hooks of backward).
void CallSites::look_for_torch() {
  const Ref name(PyUnicode_InternFromString("torch"));
  const Ref torch(name ? PyImport_GetModule(name.get()) : nullptr);
  const Ref file(torch ? PyObject_GetAttrString(torch.get(), "__file__") : nullptr);
  if (file && PyUnicode_Check(file.get())) {
    const Py_ssize_t slash = PyUnicode_FindChar(file.get(), '/', 0, PyUnicode_GetLength(file.get()), -1);
    if (slash >= 0) torch_ = PyUnicode_Substring(file.get(), 0, slash + 1);
  }
  PyErr_Clear();
}

bool CallSites::is_installed(PyCodeObject* code) const {
  const std::string file = to_utf8(code->co_filename);
  return is_passed(code, Passed::kOurs) || (!library_.empty() && file.starts_with(library_)) ||
         file.starts_with("<frozen ") || file.find("/site-packages/") != std::string::npos ||
         file.find("/dist-packages/") != std::string::npos;
}

const char* CallSites::here() {
  const CodePlace place = direct_ ? running_place_directly() : running_place();
  const auto known = places_.find(place);
  const char* text = known != places_.end() ? known->second : find_out();
  last_.store(text, std::memory_order_relaxed);
  return text;
}

// Python code may run inside this function, for example a finalizer, and may call here() again.
const char* CallSites::find_out() {
  PyFrameObject* const frame = PyEval_GetFrame();  // borrowed
  if (frame == nullptr) return nullptr;
  if (torch_ == nullptr) look_for_torch();
  const Ref program(reinterpret_cast<PyObject*>(program_frame(frame, Passed::kOursAndTorch)));
  const CodePlace real = place_of(reinterpret_cast<PyFrameObject*>(program.get()));
  if (const auto known = places_.find(real); known != places_.end()) return known->second;
  std::string fresh = describe(reinterpret_cast<PyFrameObject*>(program.get()));
  const bool full = texts_.size() >= kMostTexts && !texts_.contains(fresh);
  const char* text = full ? "one of many places" : texts_.insert(std::move(fresh)).first->c_str();
  // Not cached if all frames were skipped: the next call from this place may have a program frame.
  if (is_passed(real.code, Passed::kOursAndTorch)) return text;
  if (places_.size() >= kMostPlaces) forget();
  if (places_.emplace(real, text).second) Py_INCREF(real.code);
  return text;
}

void CallSites::forget() {
  Places gone;
  gone.swap(places_);  // first: the destruction of a code object may run Python code that calls here()
  for (const auto& [place, text] : gone) Py_DECREF(place.code);
}

std::string CallSites::path_of(PyFrameObject* innermost) const {
  std::string text = text_of(innermost);
  PyFrameObject* frame = innermost;
  Py_INCREF(frame);
  while (frame != nullptr && is_installed(place_of(frame).code)) frame = caller_of(frame);
  const Ref held(reinterpret_cast<PyObject*>(frame));
  const std::string program = frame != nullptr ? text_of(frame) : text;
  return program == text ? text : text + ", called from " + program;
}

PyFrameObject* CallSites::program_frame(PyFrameObject* innermost, Passed passed) const {
  PyFrameObject* frame = innermost;
  Py_INCREF(frame);
  while (frame != nullptr && is_passed(place_of(frame).code, passed)) frame = caller_of(frame);
  if (frame != nullptr) return frame;
  Py_INCREF(innermost);
  return innermost;
}

std::string CallSites::text_of(PyFrameObject* innermost) const {
  PyFrameObject* const frame = program_frame(innermost, Passed::kOurs);
  const Ref held(reinterpret_cast<PyObject*>(frame));
  return describe(frame);
}

std::string CallSites::describe(PyFrameObject* frame) {
  const PyCodeObject* code = place_of(frame).code;
  return short_path(to_utf8(code->co_filename)) + ":" + std::to_string(PyFrame_GetLineNumber(frame)) +
         " in " + to_utf8(code->co_name);
}

}  // namespace pc
