// The arrays of a planned call. They are checked again before each call, because the program can
// change them in between.
#pragma once

#include <vector>

#include "bindings/arrays/view.h"

namespace pc {

// Thread-safety: with the GIL.
class PlannedArrays {
 public:
  // `array` is borrowed; `buffer` is the call's view of it. Add NumPy arrays last, because adding
  // another array may run Python code that moves a NumPy array's memory. Returns false with a
  // Python error set.
  bool add(State& state, PyObject* array, const Buffer& buffer, const Use& use);
  // Returns true if every array still has its memory, shape and dtype and may be written. Otherwise
  // sets the error.
  bool are_the_same(State& state) const;

 private:
  struct Planned {
    PyObject* array;
    Use use;
    Buffer buffer;
    std::vector<int64_t> shape;  // a copy: the array's own shape can be freed
  };
  static bool is_the_same(State& state, const Planned& planned);

  std::vector<Planned> arrays_;
};

}  // namespace pc
