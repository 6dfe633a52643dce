// A call whose arguments have been looked at: made at once, or in the background.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays/view.h"
#include "bindings/calls/blocks.h"
#include "bindings/python/ref.h"
#include "bindings/state/group_object.h"
#include "comm/user_call.h"

namespace pc {

// Stays where it is: its request points into it, and so may its views.
struct PreparedCall : UserCall {
  PreparedCall() = default;
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  const char* function = "";  // "allreduce", for people; lives as long as the process
  bool is_staged = false;     // what prepares it has seen that pycollective.calls.packing must make it
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

// Where the ranks compare shapes: that of a call in which every rank has an array of one shape.
void note_shape(const GroupObject& group, const View& array, Request& request);

}  // namespace pc
