#include "gpu/direct_message_call.h"

#include "failure/descriptor.h"

namespace pc {
namespace {

Rank peer_of(const UserCall& call) {
  return call.kind == UserCall::Kind::kRecvFound ? call.found->peer : call.request.root;
}

}  // namespace

std::string text_of(const UserCall& call) {
  const bool sends = call.kind == UserCall::Kind::kSend;
  const Rank peer = peer_of(call);
  return message_text(sends ? "send to" : "recv from", peer, call.tag,
                      sends ? call.request.in : ConstBuffer(call.request.out));
}

Status words_of(const Status& of_channel, const UserCall& message, const std::string& operation, Rank rank) {
  return Status(of_channel.code(), of_channel.message())
      .with_rank(rank)
      .with_peer(peer_of(message))
      .with_operation(operation)
      .with_elapsed(of_channel.elapsed_s())
      .with_cause(of_channel.cause());
}

}  // namespace pc
