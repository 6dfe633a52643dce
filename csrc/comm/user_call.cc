#include "comm/user_call.h"

#include <utility>

#include "comm/arguments.h"

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

Status UserCall::check(Rank rank, Rank size) {
  switch (kind) {
    case Kind::kSend: return check_message(request.in, request.root, size, "send to");
    case Kind::kRecv: return check_message(request.out, request.root, size, "recv from");
    case Kind::kSendrecv: return check_sendrecv(request.in, request.root, request.out, source, rank, size);
    case Kind::kRecvFound: return check_message(request.out, found->peer, size, "recv from");
    case Kind::kCollective: break;
  }
  return check_request(request, rank, size);
}

}  // namespace pc
