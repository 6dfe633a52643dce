#include "bindings/calls/run_prepared.h"

#include "bindings/calls/gpu_call.h"
#include "bindings/calls/running_call.h"
#include "comm/run_call.h"

namespace pc {

PyObject* run_prepared(GroupObject& group, PreparedCall& call) {
  if (is_on_gpu(call)) return run_on_gpu(group, call);
  const bool may_wait = waits(group) || call.is_message();
  const Status status = run(
      group, [&](Communicator& c) { return run_call(c, call, call.timeout_s); }, may_wait);
  if (call.list != nullptr)
    return finish_blocks(group, status, call.writes_list ? call.list.get() : nullptr, call.result);
  return finish(group, status, call.written, call.result);
}

}  // namespace pc
