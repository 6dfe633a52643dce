#include "comm/run_call.h"

#include <utility>

#include "operation/async_work.h"

namespace pc {

Status run_call(Communicator& group, const UserCall& call, double timeout_s) {
  const Request& request = call.request;
  switch (call.kind) {
    case UserCall::Kind::kSend: return group.send(call.outgoing(), timeout_s);
    case UserCall::Kind::kSendrecv:
      return group.sendrecv(call.outgoing(), request.out, call.source, call.tag, timeout_s);
    case UserCall::Kind::kRecv:
      return group.recv({request.out, request.root, call.tag, request.site, call.place, request.bundle},
                        timeout_s);
    case UserCall::Kind::kRecvFound:  // the deadline of `found` applies, not timeout_s
      if (call.place.used != nullptr) *call.place.used = true;
      return group.recv(request.out, *call.found,
                        call.has_bundle ? std::optional(request.bundle) : std::nullopt);
    case UserCall::Kind::kCollective: break;
  }
  return group.run(request, timeout_s);
}

Result<std::shared_ptr<AsyncWork>> begin_call(Communicator& group, const UserCall& call, AsyncOptions how) {
  const Request& request = call.request;
  switch (call.kind) {
    case UserCall::Kind::kSend: return group.begin_send(call.outgoing(), std::move(how));
    case UserCall::Kind::kRecv:
      return group.begin_recv({request.out, request.root, call.tag, request.site, call.place, request.bundle},
                              std::move(how));
    case UserCall::Kind::kRecvFound:
    case UserCall::Kind::kSendrecv:
      return Status(Code::kInternal, "this call has no form that does not wait");
    case UserCall::Kind::kCollective: break;
  }
  return group.begin(request, std::move(how));
}

}  // namespace pc
