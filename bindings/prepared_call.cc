#include "prepared_call.h"

#include <algorithm>

#include "gpu_call.h"
#include "running_call.h"

namespace pc {

Status PreparedCall::run(Communicator& communicator) const {
  switch (kind) {
    case Kind::kSend: return communicator.send(outgoing(), timeout_s);
    case Kind::kSendrecv: return communicator.sendrecv(outgoing(), request.out, source, tag, timeout_s);
    case Kind::kRecv:
      return communicator.recv({request.out, request.root, tag, request.site, request.bundle}, timeout_s);
    case Kind::kCollective: break;
  }
  return communicator.run(request, timeout_s);
}

Result<std::shared_ptr<AsyncCall>> PreparedCall::begin(Communicator& communicator,
                                                       std::function<void()> on_end) const {
  Communicator::Async how{timeout_s, std::move(on_end)};
  switch (kind) {
    case Kind::kSend: return communicator.begin_send(outgoing(), std::move(how));
    case Kind::kRecv:
      return communicator.begin_recv(request.out, request.root, tag, request.site, std::move(how));
    case Kind::kSendrecv:  // has no such form
    case Kind::kCollective: break;
  }
  return communicator.begin(request, std::move(how));
}

OutgoingMessage PreparedCall::outgoing() const {
  const std::span<const int64_t> shape(in_view.shape(), static_cast<std::size_t>(in_view.ndim()));
  return {request.in, request.root, tag, request.site, shape, request.bundle};
}

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

bool is_collection(PyObject* x) { return PyList_Check(x) || PyTuple_Check(x) || PyDict_Check(x); }

PyObject* run_prepared(GroupObject& group, PreparedCall& call) {
  if (is_on_gpu(call)) return run_on_gpu(group, call);
  const Status status = run(group, [&](Communicator& c) { return call.run(c); });
  if (call.list != nullptr)
    return finish_blocks(group, status, call.writes_list ? call.list.get() : nullptr, call.result);
  return finish(group, status, call.written, call.result);
}

}  // namespace pc
