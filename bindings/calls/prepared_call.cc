#include "bindings/calls/prepared_call.h"

#include <algorithm>

namespace pc {

std::size_t PreparedCall::nbytes() const { return std::max(request.in.nbytes(), request.out.nbytes()); }

bool PreparedCall::note_write(const State& state) const {
  if (list != nullptr) return !writes_list || list->note_write(state);
  return written == nullptr || written->note_write(state);
}

int PreparedCall::traverse(visitproc visit, void* arg) const {
  if (made != nullptr) Py_VISIT(made->get());
  for (const View* view : {&in_view, &out_view}) {
    if (const int stop = view->traverse(visit, arg); stop != 0) return stop;
  }
  return list == nullptr ? 0 : list->traverse(visit, arg);
}

void note_shape(const GroupObject& group, const View& array, Request& request) {
  if (!group.is_strict) return;
  request.shape = group.state->shapes.insert(shape_text(array.shape(), array.ndim())).first->c_str();
}

}  // namespace pc
