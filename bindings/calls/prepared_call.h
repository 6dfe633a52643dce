// A call with checked arguments. It runs at once or in the background.
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

// Must not be moved: the request points to other members, and a view may point into itself.
struct PreparedCall : UserCall {
  PreparedCall() = default;
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  const char* function = "";  // "allreduce", for messages; lives as long as the process
  bool is_staged = false;     // Set during preparation if pycollective.calls.packing must make the call.
  double timeout_s = -1;
  View in_view, out_view;
  const View* written = nullptr;  // one of the views, or null if nothing is written
  std::unique_ptr<Blocks> list;   // used instead of the views
  bool writes_list = false;
  PyObject* arrays[2] = {};                        // the arrays of the views, borrowed; may be null
  PyObject* result = nullptr;                      // what the call returns, borrowed
  std::unique_ptr<Ref> made;                       // owns `result` if it was made for this call
  std::vector<uint64_t> counts, recv_counts = {};  // storage for the counts of the request

  bool is_message() const { return kind != Kind::kCollective; }
  std::size_t nbytes() const;
  bool note_write(const State& state) const;       // marks what was written; see View
  int traverse(visitproc visit, void* arg) const;  // visits all owned references, for the garbage collector
};

// How a function makes its call: it waits, returns a Work, or plans the call for later.
enum class Form : uint8_t { kBlocking, kAsync, kPlanned };

// In strict mode, records the shape for a call in which every rank has an array of the same shape.
void note_shape(const GroupObject& group, const View& array, Request& request);

}  // namespace pc
