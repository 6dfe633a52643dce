// Which line of Python a call comes from: "train.py:42 in step".
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
  bool load();  // false with a Python error set

  // Where this thread's current call comes from, in the program: frames of torch, which calls us too (its backend, hooks),
  // are passed over. The text stays where it is as long as the process lives, for threads without the GIL too. nullptr: no
  // Python code calls. Leaves no Python error behind.
  const char* here();
  // The same for any frame, afresh. Frames of this package are passed over if one further out is not of this package.
  std::string text_of(PyFrameObject* frame) const;
  // Also which line of the program that comes from, if the frame is of an installed library: "selectors.py:468 in select,
  // called from train.py:42 in step".
  std::string path_of(PyFrameObject* frame) const;
  // What here() answered last, in whichever thread. Any thread, without the GIL.
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

  // Parts of the package that are programs: what they do is not told as their caller's.
  static constexpr std::array kPrograms = {"bench.py", "tools/compare/", "tools/tune/"};

  enum class Passed : uint8_t { kOurs, kOursAndTorch };  // frames that are passed over

  bool is_passed(PyCodeObject* code, Passed passed) const;
  void look_for_torch();
  // The innermost frame that is not passed over, or, if all are, the innermost one. A new reference.
  PyFrameObject* program_frame(PyFrameObject* innermost, Passed passed) const;
  static std::string describe(PyFrameObject* frame);
  bool is_installed(PyCodeObject* code) const;
  const char* find_out();
  void forget();

  Places places_;  // holds a reference to every code object, so that no other one gets its address
  std::unordered_set<std::string> texts_;  // whose elements never move
  std::atomic<const char*> last_{nullptr};
  bool direct_ = false;         // running_place_directly() is right
  PyObject* folder_ = nullptr;  // of this package, with a slash at the end; owned
  PyObject* torch_ = nullptr;   // of torch likewise, where the program has imported it
  std::array<PyObject*, kPrograms.size()> programs_ = {};
  std::string library_;  // Python's own, likewise; empty: it has none
};

}  // namespace pc
