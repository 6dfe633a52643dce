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

// As METH_FASTCALL | METH_KEYWORDS hands them over.
struct Arguments {
  PyObject* const* args;
  Py_ssize_t nargs;
  PyObject* kwnames;
};

// What a call was given for each parameter, borrowed. Null: it was left out, or the call has no such parameter.
class Given {
 public:
  void set(Name name, PyObject* value) {
    values_[name] = value;
    is_set_ |= 1U << name;
  }
  PyObject* operator[](Name name) const { return (is_set_ >> name & 1U) != 0 ? values_[name] : nullptr; }

 private:
  static_assert(kNameCount <= 32);
  uint32_t is_set_ = 0;
  std::array<PyObject*, kNameCount> values_;  // valid where is_set_ says so: clearing all costs 20 ns
};

// False: TypeError is set.
bool parse(const State& state, const Signature& signature, const Arguments& arguments, Given& given);

// "allreduce(x, op='sum', *, out=None)", as inspect.signature() reads it.
std::string signature_text(const Signature& signature);
// What a parameter is if it is left out. A new reference, or nullptr with a Python error set.
PyObject* default_of(const State& state, Name name);

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
