// Holds the GIL in a thread that may not have it.
#pragma once

#include <Python.h>

namespace pc {

class WithGil {
 public:
  WithGil() = default;
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;
  ~WithGil() { PyGILState_Release(before_); }

 private:
  const PyGILState_STATE before_ = PyGILState_Ensure();
};

}  // namespace pc
