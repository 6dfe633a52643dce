#include "comm/user_call.h"

#include <utility>

#include "comm/arguments.h"
#include "operation/async_work.h"

namespace pc {

UserCall UserCall::of(const OutgoingMessage& message) {
  UserCall call;
  call.kind = Kind::kSend;
  call.tag = message.tag;
  call.shape = message.shape;
  call.place = message.place;
  call.request.in = message.data;
  call.request.root = message.peer;
  call.request.site = message.site;
  call.request.bundle = message.bundle;
  call.request.stream = message.stream;
  return call;
}

UserCall UserCall::of(const IncomingMessage& message) {
  UserCall call = of(OutgoingMessage{
      {}, message.peer, message.tag, message.site, message.place, {}, message.bundle, message.stream});
  call.kind = Kind::kRecv;
  call.request.out = message.data;
  return call;
}

UserCall UserCall::of(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle) {
  UserCall call;
  call.kind = Kind::kRecvFound;
  call.found = &found;
  call.has_bundle = bundle.has_value();
  call.request.out = data;
  call.request.bundle = bundle.value_or(0);
  call.request.site = found.site;
  return call;
}

Status UserCall::run(Communicator& group, double timeout_s) const {
  switch (kind) {
    case Kind::kSend: return group.send(outgoing(), timeout_s);
    case Kind::kSendrecv: return group.sendrecv(outgoing(), request.out, source, tag, timeout_s);
    case Kind::kRecv:
      return group.recv({request.out, request.root, tag, request.site, place, request.bundle}, timeout_s);
    case Kind::kRecvFound:  // by its own deadline
      if (place.used != nullptr) *place.used = true;
      return group.recv(request.out, *found, has_bundle ? std::optional(request.bundle) : std::nullopt);
    case Kind::kCollective: break;
  }
  return group.run(request, timeout_s);
}

Result<std::shared_ptr<AsyncWork>> UserCall::begin(Communicator& group, AsyncOptions how) const {
  switch (kind) {
    case Kind::kSend: return group.begin_send(outgoing(), std::move(how));
    case Kind::kRecv: return group.begin_recv({request.out, request.root, tag, request.site}, std::move(how));
    case Kind::kRecvFound:
    case Kind::kSendrecv: return Status(Code::kInternal, "this call has no form that does not wait");
    case Kind::kCollective: break;
  }
  return group.begin(request, std::move(how));
}

std::string_view UserCall::name() const {
  switch (kind) {
    case Kind::kSend: return "send";
    case Kind::kSendrecv: return "sendrecv";
    case Kind::kRecv:
    case Kind::kRecvFound: return "recv";
    case Kind::kCollective: break;
  }
  return name_of(request.collective);
}

Status UserCall::check(const Communicator& group) {
  switch (kind) {
    case Kind::kSend: return check_message(request.in, request.root, group.size(), "send to");
    case Kind::kRecv: return check_message(request.out, request.root, group.size(), "recv from");
    case Kind::kSendrecv:
      return check_sendrecv(request.in, request.root, request.out, source, group.rank(), group.size());
    case Kind::kRecvFound: return check_message(request.out, found->peer, group.size(), "recv from");
    case Kind::kCollective: break;
  }
  return check_request(request, group.rank(), group.size());
}

}  // namespace pc
