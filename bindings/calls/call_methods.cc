#include "bindings/calls/call_methods.h"

#include <string>
#include <string_view>
#include <utility>

#include "bindings/calls/call_table.h"
#include "bindings/calls/forms.h"
#include "bindings/python/ref.h"
#include "bindings/state/group_object.h"
#include "bindings/state/guarded.h"

namespace pc {
namespace {

PyObject* make(GroupObject& group, const CallRow& row, Form form, const Arguments& arguments) {
  switch (form) {
    case Form::kBlocking: return make_blocking(group, row, arguments);
    case Form::kAsync: return make_async(group, row, arguments);
    case Form::kPlanned: return make_planned(group, row, arguments);
  }
  return nullptr;
}

template <std::size_t row, Form form>
PyObject* on_group(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&] {
    return make(*reinterpret_cast<GroupObject*>(self), kCallTable[row], form, {args, nargs, kwnames});
  });
}

template <std::size_t row, Form form>
PyObject* on_world(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    // Holds a reference: shutdown() in another thread releases the world while this call waits.
    const Ref world(current_world(*reinterpret_cast<WorldObject*>(self)->state));
    if (!world) return nullptr;
    return make(*reinterpret_cast<GroupObject*>(world.get()), kCallTable[row], form, {args, nargs, kwnames});
  });
}

// {name} stands for the blocking call.
constexpr const char* kAsync = R"(Begin {name}() and return its Work at once.
{order}
Parameters:
    As {name}(). The timeout begins now. {held}

Returns:
    The Work. Its wait() returns what {name}() returns.

Raises:
    InvalidArgument, Unsupported, NotInitialized, ForkedProcess: as {name}(), at once. wait() raises
        all other errors.
    CollectiveMismatch and others: an earlier call has failed, and its error has not been raised yet.

Source: {name}().

Example:
    >>> import numpy as np, pycollective as pc
    >>> _ = pc.init()
{example}
    >>> pc.shutdown()
)";
constexpr const char* kOrderOfMessages = R"(
Messages are ordered only among those with the same peer, tag and direction. A message in progress
does not delay other calls, so `send_async(x, next); recv(y, previous)` is correct on every rank of
a ring.
)";
constexpr const char* kArraysAreHeld = R"(Arrays are kept until
    the call has ended: do not access an array that it writes, nor change an array that it reads.)";
constexpr const char* kEqualParts = R"(
    Takes equal parts along axis 0 of contiguous arrays; raises Unsupported for others.)";

void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

std::string async_text(const CallRow& row) {
  const bool has_array = row.signature.required > 0;
  std::string held = has_array ? kArraysAreHeld : "Other calls may be made meanwhile; they run after it.";
  if (row.background == Background::kParts) held += kEqualParts + std::string(row.async_note);
  std::string text = kAsync;
  replace_all(text, "{order}", row.is_message ? kOrderOfMessages : "");
  replace_all(text, "{held}", held);
  replace_all(text, "{example}", row.async_example);
  replace_all(text, "{name}", row.signature.function);
  return text;
}

struct Texts {  // the docstrings of one row
  std::string blocking, async, planned;
};

std::string with_signature(const CallRow& row, Form form, const std::string& text) {
  return signature_text(row.signature_of(form)) + "\n--\n\n" + text;
}

// Never destroyed, because CPython keeps pointers to them.
const std::array<Texts, kCallTable.size()>& texts() {
  static const auto* const all = [] {
    auto* const made = new std::array<Texts, kCallTable.size()>;
    for (std::size_t i = 0; i < kCallTable.size(); ++i) {
      const CallRow& row = kCallTable[i];
      (*made)[i].blocking = with_signature(row, Form::kBlocking, row.doc);
      if (row.async_name != nullptr) (*made)[i].async = with_signature(row, Form::kAsync, async_text(row));
      if (row.planned_name != nullptr)
        (*made)[i].planned = with_signature(row, Form::kPlanned, row.planned_doc);
    }
    return made;
  }();
  return *all;
}

using Entry = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

struct Entries {  // the entry points of one row, one per form
  Entry blocking, async, planned;
};

void add(std::vector<PyMethodDef>& methods, const CallRow& row, const Texts& text, const Entries& entries) {
  methods.push_back({row.signature.function, fast(entries.blocking), kFast, text.blocking.c_str()});
  if (row.async_name != nullptr)
    methods.push_back({row.async_name, fast(entries.async), kFast, text.async.c_str()});
  if (row.planned_name != nullptr)
    methods.push_back({row.planned_name, fast(entries.planned), kFast, text.planned.c_str()});
}

template <std::size_t... rows>
void add_to_group(std::vector<PyMethodDef>& methods, std::index_sequence<rows...>) {
  (add(methods, kCallTable[rows], texts()[rows],
       {on_group<rows, Form::kBlocking>, on_group<rows, Form::kAsync>, on_group<rows, Form::kPlanned>}),
   ...);
}
template <std::size_t... rows>
void add_to_world(std::vector<PyMethodDef>& methods, std::index_sequence<rows...>) {
  (add(methods, kCallTable[rows], texts()[rows],
       {on_world<rows, Form::kBlocking>, on_world<rows, Form::kAsync>, on_world<rows, Form::kPlanned>}),
   ...);
}

}  // namespace

void add_group_calls(std::vector<PyMethodDef>& methods) {
  add_to_group(methods, std::make_index_sequence<kCallTable.size()>());
}

void add_world_calls(std::vector<PyMethodDef>& methods) {
  add_to_world(methods, std::make_index_sequence<kCallTable.size()>());
}

}  // namespace pc
