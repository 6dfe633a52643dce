// What a user can ask a group for: a collective or a message. One thing that can be made at once, begun, or made with other memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "engine/request.h"
#include "operation/message.h"

namespace pc {

// A view: what it points to must outlive the call.
struct UserCall {
  enum class Kind : uint8_t { kCollective, kSend, kRecv, kSendrecv, kRecvFound };
  Kind kind = Kind::kCollective;
  Request request = {};  // of a message: what is sent is `in`, what is received is `out`, `root` its peer
  uint32_t tag = 0;
  Rank source = 0;                                     // of a sendrecv
  std::optional<std::span<const int64_t>> shape = {};  // of what is sent: OutgoingMessage
  const FoundMessage* found = nullptr;                 // of a kRecvFound
  bool has_bundle = true;   // likewise; false: the message is taken whatever list it may be
  MessagePlace place = {};  // of a send or recv
  // Of arrays on a GPU: what they need to live, let go when the call has ended.
  std::shared_ptr<const void> keeps = {};
  // Likewise: the list that is its array, also where the request has it as one piece of memory.
  const IoVec* joined = nullptr;

  static UserCall of(const OutgoingMessage& message);
  static UserCall of(const IncomingMessage& message);
  static UserCall of(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle);
  std::string_view name() const;  // "allreduce", "send"
  // What a group would say of its arguments. Also brings a collective into the form that executors expect.
  Status check(Rank rank, Rank size);
  OutgoingMessage outgoing() const {
    return {request.in, request.root, tag, request.site, place, shape, request.bundle};
  }
};

}  // namespace pc
