// A user's call on a group: a collective or a message. The same object can be run, begun
// asynchronously, or repeated with other memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "engine/request.h"
#include "operation/message.h"

namespace pc {

// A view: the memory that it refers to must outlive the call.
struct UserCall {
  enum class Kind : uint8_t { kCollective, kSend, kRecv, kSendrecv, kRecvFound };
  Kind kind = Kind::kCollective;
  Request request = {};  // for a message: `in` is sent, `out` is received, `root` is its peer
  uint32_t tag = 0;
  Rank source = 0;                                     // for a sendrecv: the rank to receive from
  std::optional<std::span<const int64_t>> shape = {};  // shape of what is sent: see OutgoingMessage
  const FoundMessage* found = nullptr;                 // for a kRecvFound: the message to receive
  bool has_bundle = true;                              // for a kRecvFound; false: any content is accepted
  MessagePlace place = {};                             // for a send or recv
  // Keeps alive what arrays on a GPU need. Released when the call has ended.
  std::shared_ptr<const void> keeps = {};
  // For arrays on a GPU: the list of the arrays, which is set even if the request describes the
  // list as one block of memory.
  const IoVec* joined = nullptr;

  static UserCall of(const OutgoingMessage& message);
  static UserCall of(const IncomingMessage& message);
  static UserCall of(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle);
  std::string_view name() const;  // "allreduce", "send"
  // Returns the error that a group would report for these arguments. Also brings a collective into
  // the form that executors expect.
  Status check(Rank rank, Rank size);
  OutgoingMessage outgoing() const {
    return {request.in, request.root, tag, request.site, place, shape, request.bundle};
  }
};

}  // namespace pc
