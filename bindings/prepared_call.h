// A call whose arguments have been looked at: made at once, or in the background.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bind_errors.h"
#include "bind_group.h"
#include "blocks.h"
#include "gpu/staging/user_call.h"
#include "in_python.h"
#include "ref.h"
#include "view.h"

namespace pc {

// Stays where it is: its request points into it, and so may its views.
struct PreparedCall : UserCall {
  PreparedCall() = default;
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  const char* function = "";  // "allreduce", for people; lives as long as the process
  bool is_staged = false;     // what prepares it has seen that pycollective.calls.staged must make it
  double timeout_s = -1;
  View in_view, out_view;
  const View* written = nullptr;  // one of these, or null: nothing is written
  std::unique_ptr<Blocks> list;   // instead of the views
  bool writes_list = false;
  PyObject* arrays[2] = {};                        // whose memory that is: borrowed; may be null
  PyObject* result = nullptr;                      // what the call returns: borrowed
  std::unique_ptr<Ref> made;                       // the same, where it was made for this call
  std::vector<uint64_t> counts, recv_counts = {};  // the request's

  bool is_message() const { return kind != Kind::kCollective; }
  std::size_t nbytes() const;
  bool note_write(const State& state) const;       // as View's, of what is written
  int traverse(visitproc visit, void* arg) const;  // all references that it owns, for the garbage collector
};

// How a function makes its call: it waits, returns a Work, or makes the call for later.
enum class Form : uint8_t { kBlocking, kAsync, kPlanned };
constexpr const char* function_name(Form form, const char* blocking, const char* async) {
  return form == Form::kAsync ? async : blocking;
}

// Where the ranks compare shapes: that of a call in which every rank has an array of one shape.
void note_shape(const GroupObject& group, const View& array, Request& request);

bool is_collection(PyObject* x);  // a list, tuple or dict

// nullptr: a Python error is set.
PyObject* run_prepared(GroupObject& group, PreparedCall& call);
PyObject* launch_prepared(GroupObject& group, std::unique_ptr<PreparedCall> call);  // a Work

// What has METH_FASTCALL | METH_KEYWORDS's arguments and makes a call of them. False: a Python error is set.
using Prepare = bool (*)(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                         PreparedCall& call);

template <Prepare prepare>
PyObject* blocking(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PreparedCall call;
  if (prepare(group, args, nargs, kwnames, call)) return run_prepared(group, call);
  const bool stageable = call.is_staged || call.in_view.stageable() || call.out_view.stageable();
  return stageable ? staged(call.function, group, args, nargs, kwnames) : nullptr;
}
template <Prepare prepare, bool takes_lists = false>
PyObject* in_background(GroupObject& group, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  auto call = std::make_unique<PreparedCall>();
  if (prepare(group, args, nargs, kwnames, *call)) return launch_prepared(group, std::move(call));
  if (call->is_staged) {
    refuse(*group.state,
           std::string(call->function) + ": reproducible=\"world\" waits: call it without _async");
  } else if (takes_lists && ((nargs > 0 && is_collection(args[0])) || call->in_view.is_immutable())) {
    return staged(call->function, group, args, nargs, kwnames);
  }
  return nullptr;
}

}  // namespace pc
