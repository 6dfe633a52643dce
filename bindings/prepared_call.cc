#include "prepared_call.h"

#include <algorithm>

#include "gpu_call.h"
#include "running_call.h"
#include "view_builder.h"

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

bool is_collection(PyObject* x) { return PyList_Check(x) || PyTuple_Check(x) || PyDict_Check(x); }

PyObject* run_prepared(GroupObject& group, PreparedCall& call) {
  if (is_on_gpu(call)) return run_on_gpu(group, call);
  const bool may_wait = waits(group) || call.is_message();
  const Status status = run(
      group, [&](Communicator& c) { return call.run(c, call.timeout_s); }, may_wait);
  if (call.list != nullptr)
    return finish_blocks(group, status, call.writes_list ? call.list.get() : nullptr, call.result);
  return finish(group, status, call.written, call.result);
}

}  // namespace pc
