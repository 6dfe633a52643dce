#include "bindings/calls/arguments.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "bindings/calls/bind_ops.h"
#include "bindings/python/ref.h"
#include "bindings/state/errors.h"

namespace pc {
namespace {

// Returns the parameter that `keyword` names, or null.
const Name* find(const State& state, const Signature& signature, PyObject* keyword) {
  const Name* const begin = signature.names.data();
  const Name* const end = begin + signature.count;
  const Name* found = std::find_if(begin, end, [&](Name name) { return state.names[name] == keyword; });
  if (found == end)  // a string built at run time is not interned
    found = std::find_if(begin, end,
                         [&](Name name) { return PyUnicode_Compare(state.names[name], keyword) == 0; });
  return found == end ? nullptr : found;
}

// Returns advice for a keyword that has another name here, from the table in Python. Returns null
// with an error set on failure.
Ref advice_on(const State& state, const Signature& signature, PyObject* keyword) {
  const Ref module(PyImport_ImportModule("pycollective.base.foreign_words"));
  if (!module) return Ref(nullptr);
  const Ref own(PyTuple_New(signature.count));
  if (!own) return Ref(nullptr);
  for (int i = 0; i < signature.count; ++i)
    PyTuple_SET_ITEM(own.get(), i, Py_NewRef(state.names[signature.names[static_cast<std::size_t>(i)]]));
  return Ref(PyObject_CallMethod(module.get(), "of_argument", "OO", keyword, own.get()));
}

[[gnu::cold, gnu::noinline]] void unexpected(const State& state, const Signature& signature,
                                             PyObject* keyword) {
  const Ref advice = advice_on(state, signature, keyword);
  if (!advice) {
    // If making the advice fails, only the error of the call is reported. Ctrl-C and MemoryError
    // are kept instead.
    const bool is_of_the_advice =
        PyErr_ExceptionMatches(PyExc_Exception) != 0 && PyErr_ExceptionMatches(PyExc_MemoryError) == 0;
    if (!is_of_the_advice) return;
    PyErr_Clear();
  }
  const bool knows = advice && PyUnicode_Check(advice.get()) && PyUnicode_GET_LENGTH(advice.get()) > 0;
  if (knows)
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U': %U", signature.function,
                 keyword, advice.get());
  else
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", signature.function,
                 keyword);
}

// Reports too many positional arguments and lists the keywords, because users of other systems pass
// a list for the results first, or a root or a group by position.
[[gnu::cold, gnu::noinline]] void too_many(const State& state, const Signature& signature, Py_ssize_t given) {
  std::string keywords;
  for (int i = signature.positional; i < signature.count; ++i) {
    const char* const name = PyUnicode_AsUTF8(state.names[signature.names[static_cast<std::size_t>(i)]]);
    if (name == nullptr) return;
    keywords += std::string(i == signature.positional ? ". By keyword: " : ", ") + name + "=";
  }
  PyErr_Format(PyExc_TypeError, "%s() takes %s%d positional argument%s but %zd were given%s",
               signature.function, signature.required == signature.positional ? "" : "at most ",
               signature.positional, signature.positional == 1 ? "" : "s", given, keywords.c_str());
}

// Returns true if the default is 0.
bool is_number(Name name) { return name == kRoot || name == kTag || name == kAxis; }

// Interprets "SUM", "PRODUCT" or "Average" from other systems.
std::optional<ReduceOp> op_of_elsewhere(std::string_view name) {
  std::string lower(name);
  for (char& each : lower) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  if (lower == "product") return ReduceOp::kProd;
  if (lower == "average") return ReduceOp::kAvg;
  return op_from_name(lower);
}

}  // namespace

bool parse(const State& state, const Signature& signature, const Arguments& arguments, Given& given) {
  const auto& [args, nargs, kwnames] = arguments;
  if (nargs > signature.positional) return too_many(state, signature, nargs), false;
  for (Py_ssize_t i = 0; i < nargs; ++i) given.set(signature.names[static_cast<std::size_t>(i)], args[i]);
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    const Name* const name = find(state, signature, keyword);
    if (name == nullptr) {
      unexpected(state, signature, keyword);
      return false;
    }
    if (given[*name] != nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", signature.function,
                   keyword);
      return false;
    }
    given.set(*name, args[nargs + k]);
  }
  for (int i = 0; i < signature.required; ++i) {
    const Name name = signature.names[static_cast<std::size_t>(i)];
    if (given[name] != nullptr) continue;
    PyErr_Format(PyExc_TypeError, "%s() missing required argument '%U'", signature.function,
                 state.names[name]);
    return false;
  }
  return true;
}

std::string signature_text(const Signature& signature) {
  std::string text = std::string(signature.function) + "(";
  for (int i = 0; i < signature.count; ++i) {
    if (i > 0) text += ", ";
    if (i == signature.positional) text += "*, ";
    const Name name = signature.names[static_cast<std::size_t>(i)];
    text += text_of(name);
    if (i < signature.required) continue;
    text += name == kOp ? "='sum'" : is_number(name) ? "=0" : name == kWithSource ? "=False" : "=None";
  }
  return text + ")";
}

PyObject* default_of(const State& state, Name name) {
  if (name == kOp) return Py_NewRef(state.ops[static_cast<std::size_t>(ReduceOp::kSum)]);
  if (is_number(name)) return PyLong_FromLong(0);
  return Py_NewRef(name == kWithSource ? Py_False : Py_None);
}

bool to_op(const State& state, const char* function, PyObject* value, Reduction* out) {
  if (value == nullptr) return true;
  for (std::size_t i = 0; i < state.ops.size(); ++i) {
    if (state.ops[i] == value) {
      *out = static_cast<ReduceOp>(i);
      return true;
    }
  }
  if (const Reduction* scaled = scaled_reduction(state, value)) {
    *out = *scaled;
    return true;
  }
  if (!PyUnicode_Check(value)) {
    PyErr_Format(
        PyExc_TypeError,
        "%s(): op must be a string or what scaled() gives, not %s: write op=\"sum\", \"prod\", \"min\", "
        "\"max\" or \"avg\"",
        function, Py_TYPE(value)->tp_name);
    return false;
  }
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value, &length);
  if (text == nullptr) {  // the string has a lone surrogate
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) return false;
    PyErr_Clear();
    text = "?";
    length = 1;
  }
  const std::string_view name(text, static_cast<std::size_t>(length));
  if (const std::optional<ReduceOp> op = op_from_name(name)) {
    *out = *op;
    return true;
  }
  std::string message = std::string(function) + ": op \"" + std::string(name) + "\" is not one of";
  for (int i = 0; i < kNamedOpCount; ++i)
    message += std::string(i == 0 ? " " : ", ") + std::string(name_of(static_cast<ReduceOp>(i)));
  if (const std::optional<ReduceOp> meant = op_of_elsewhere(name))
    message += ": write op=\"" + std::string(name_of(*meant)) + "\"";
  return refuse(state, std::move(message));
}

bool to_timeout(const State& state, const char* function, PyObject* value, double* out) {
  if (value == nullptr || value == Py_None) return true;
  const double seconds = PyFloat_AsDouble(value);
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
      PyErr_Format(PyExc_TypeError, "%s(): timeout must be a number of seconds or None, not %s", function,
                   Py_TYPE(value)->tp_name);
    }
    return false;
  }
  if (std::isnan(seconds) || seconds < 0) {
    return refuse(state, std::string(function) + ": timeout must be a number of seconds, 0 or more, not " +
                             std::to_string(seconds));
  }
  *out = seconds;
  return true;
}

bool to_reproducible(const State& state, const char* function, PyObject* value, bool* fixed, bool* world) {
  if (value == nullptr || value == Py_None) return true;
  *fixed = PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, "shape") == 0;
  *world = PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, "world") == 0;
  if (*fixed || *world) return true;
  return refuse(state, std::string(function) + ": reproducible must be \"shape\", \"world\" or None");
}

bool to_integer(const State& state, const char* function, const char* name, PyObject* value, int64_t most,
                int64_t* out) {
  if (value == nullptr) return true;
  if (PyIndex_Check(value) == 0) {
    PyErr_Format(PyExc_TypeError, "%s(): %s must be an integer, not %s", function, name,
                 Py_TYPE(value)->tp_name);
    return false;
  }
  PyObject* index = PyNumber_Index(value);
  if (index == nullptr) return false;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0 || number < 0 || number > most) {
    return refuse(state, std::string(function) + ": " + name + " must be between 0 and " +
                             std::to_string(most) + (overflow != 0 ? "" : ", not " + std::to_string(number)));
  }
  *out = number;
  return true;
}

}  // namespace pc
