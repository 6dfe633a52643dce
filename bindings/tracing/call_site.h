// Finds the Python line that makes a call: "train.py:42 in step".
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "bindings/tracing/running_code.h"

namespace pc {

// One per process, never destroyed. Thread-safety: the GIL guards everything but last().
class CallSites {
 public:
  bool load();  // returns false with a Python error set

  // Returns the program line of this thread's current call. Skips frames of torch, which calls
  // pycollective too (its backend, hooks). The text stays valid for the life of the process, also
  // for threads without the GIL. Returns nullptr if no Python code runs. Leaves no Python error
  // set.
  const char* here();
  // Describes any frame, without the cache. Skips frames of this package if a frame outside of the
  // package follows.
  std::string text_of(PyFrameObject* frame) const;
  // Like text_of(). If the frame belongs to an installed library, adds the program line that called
  // it: "selectors.py:468 in select, called from train.py:42 in step".
  std::string path_of(PyFrameObject* frame) const;
  // Returns the last result of here() in any thread. Callable from any thread, without the GIL.
  const char* last() const { return last_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kMostPlaces = 4096, kMostTexts = 65536;
  struct Hash {
    std::size_t operator()(const CodePlace& place) const {
      return reinterpret_cast<std::size_t>(place.code) / 16 +
             static_cast<std::size_t>(place.instruction) * 31;
    }
  };
  using Places = std::unordered_map<CodePlace, const char*, Hash>;

  // Parts of the package that are programs: their frames are not skipped.
  static constexpr std::array kPrograms = {"bench.py", "tools/compare/", "tools/tune/"};

  enum class Passed : uint8_t { kOurs, kOursAndTorch };  // which frames are skipped

  bool is_passed(PyCodeObject* code, Passed passed) const;
  void look_for_torch();
  // Returns a new reference to the innermost frame that is not skipped, or the innermost frame if
  // all are.
  PyFrameObject* program_frame(PyFrameObject* innermost, Passed passed) const;
  static std::string describe(PyFrameObject* frame);
  bool is_installed(PyCodeObject* code) const;
  const char* find_out();
  void forget();

  Places places_;  // Holds a reference to every code object, so that no other code object gets its address.
  std::unordered_set<std::string> texts_;  // elements never move
  std::atomic<const char*> last_{nullptr};
  bool direct_ = false;         // running_place_directly() is correct
  PyObject* folder_ = nullptr;  // this package's folder, with a slash at the end; owned
  PyObject* torch_ = nullptr;   // torch's folder in the same form, once the program has imported it
  std::array<PyObject*, kPrograms.size()> programs_ = {};
  std::string library_;  // folder of Python's standard library in the same form; empty if it has none
};

}  // namespace pc
