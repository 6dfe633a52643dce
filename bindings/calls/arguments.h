// Arguments of the hot calls, parsed by hand: pybind11's keyword dispatch costs 150 ns, this parser
// 10 to 20 ns.
#pragma once

#include "bindings/state/state.h"

namespace pc {

struct Signature {
  const char* function;
  int required;    // how many leading parameters are required
  int positional;  // how many leading parameters may be given by position
  int count;
  std::array<Name, 7> names;
};

// The arguments in the form that METH_FASTCALL | METH_KEYWORDS passes them.
struct Arguments {
  PyObject* const* args;
  Py_ssize_t nargs;
  PyObject* kwnames;
};

// The value given for each parameter, borrowed. Null if it was omitted or the call has no such
// parameter.
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
  // An entry is valid only if its bit in is_set_ is set. Clearing all entries would cost 20 ns.
  std::array<PyObject*, kNameCount> values_;
};

// Returns false with TypeError set.
bool parse(const State& state, const Signature& signature, const Arguments& arguments, Given& given);

// Returns "allreduce(x, op='sum', *, out=None)", which inspect.signature() can parse.
std::string signature_text(const Signature& signature);
// Returns the default value of a parameter as a new reference, or nullptr with a Python error set.
PyObject* default_of(const State& state, Name name);

// Returns true if the argument was neither omitted nor None.
inline bool is_given(PyObject* value) { return value != nullptr && value != Py_None; }

// These convert values. They return false with a Python error set. `*out` stays unchanged if the
// argument was omitted (null; for the timeout also None).
bool to_op(const State& state, const char* function, PyObject* value, Reduction* out);
bool to_timeout(const State& state, const char* function, PyObject* value, double* out);
// For "shape" `*fixed` becomes true. For "world" `*world` becomes true, and
// pycollective/calls/reproducible.py makes the call. For None neither is set.
bool to_reproducible(const State& state, const char* function, PyObject* value, bool* fixed, bool* world);
bool to_integer(const State& state, const char* function, const char* name, PyObject* value, int64_t most,
                int64_t* out);

}  // namespace pc
