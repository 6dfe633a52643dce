// Arguments of the hot calls, parsed by hand: pybind11's keyword dispatch costs 150 ns, this 10 to 20.
#pragma once

#include "bindings/state/state.h"

namespace pc {

struct Signature {
  const char* function;
  int required;    // the first so many must be given
  int positional;  // the first so many may be given by position
  int count;
  std::array<Name, 7> names;
};

// Fills slots[0..count) with borrowed references, nullptr where an argument was left out. False: TypeError is set.
bool parse(const State& state, const Signature& signature, PyObject* const* args, Py_ssize_t nargs,
           PyObject* kwnames, PyObject** slots);

// Neither left out nor None.
inline bool is_given(PyObject* value) { return value != nullptr && value != Py_None; }

// Values. False: a Python error is set. Left out (null; for the timeout None too), `*out` stays as it is.
bool to_op(const State& state, const char* function, PyObject* value, Reduction* out);
bool to_timeout(const State& state, const char* function, PyObject* value, double* out);
// "shape": *fixed becomes true. "world": *world becomes true, and pycollective/calls/reproducible.py makes the call. None: neither.
bool to_reproducible(const State& state, const char* function, PyObject* value, bool* fixed, bool* world);
bool to_integer(const State& state, const char* function, const char* name, PyObject* value, int64_t most,
                int64_t* out);

}  // namespace pc
