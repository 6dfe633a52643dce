// The arrays of a planned call, which are looked at again before each call: whoever has them can change them meanwhile.
#pragma once

#include <vector>

#include "bindings/arrays/view.h"

namespace pc {

// Thread-safety: with the GIL.
class PlannedArrays {
 public:
  // `array` is borrowed; `buffer` is what the call has of it. Those come first whose looking at may run code that moves
  // others: NumPy's last. False: a Python error is set.
  bool add(State& state, PyObject* array, const Buffer& buffer, const Use& use);
  // True if all lie where they lay, with their shapes and dtypes, and may still be written; else the error is set.
  bool are_the_same(State& state) const;

 private:
  struct Planned {
    PyObject* array;
    Use use;
    Buffer buffer;
    std::vector<int64_t> shape;  // a copy: the array's own can go away
  };
  static bool is_the_same(State& state, const Planned& planned);

  std::vector<Planned> arrays_;
};

}  // namespace pc
