// What travels between a store client and the store server. Little-endian, one request at a time per connection:
//
//   first             the handshake (wire/handshake.h), role kStore; the client begins
//   request           0  u8   operation: 1 set, 2 get, 3 add, 4 erase, 5 pop, 6 wait, 7 erase all that begin with the key
//                     1  u8   0
//                     2  u16  key bytes, 1..4096
//                     4  u32  value bytes, at most 8 MiB; 0 unless set
//                     8  i64  add: what to add. get, pop, wait: 1 if a missing key is reported at once (the error
//                             kTimeout), and 0 if it is waited for. 0 for all others
//                    16       key, then value
//   reply             0  u8   0, or the Code of an error whose text is the value
//                     1  u8[3] 0
//                     4  u32  value bytes, at most 8 MiB
//                     8  i64  the new number of an add
//                    16       value
//
// A get, pop or wait that waits is answered when the key is there, in the order in which they came; a client that no
// longer wants the answer closes the connection. Lengths are checked before memory is taken for them, and memory grows
// with what has really arrived.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "store/store.h"

namespace pc {

static_assert(std::endian::native == std::endian::little,
              "store/protocol.h copies fields as they lie in memory");

enum class StoreOp : uint8_t { kSet = 1, kGet = 2, kAdd = 3, kErase = 4, kPop = 5, kWait = 6, kEraseAll = 7 };
inline constexpr std::size_t kStoreHeaderBytes = 16;
inline constexpr int64_t kAtOnce = 1;  // the number of a get, pop or wait that does not wait
using StoreHeader = std::array<char, kStoreHeaderBytes>;

inline bool waits(StoreOp op) { return op == StoreOp::kGet || op == StoreOp::kPop || op == StoreOp::kWait; }

struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  uint16_t key_nbytes = 0;
  uint32_t value_nbytes = 0;
  int64_t delta = 0;
  std::size_t body_nbytes() const { return std::size_t{key_nbytes} + value_nbytes; }
};
struct StoreReply {
  Code code = Code::kOk;
  uint32_t value_nbytes = 0;
  int64_t number = 0;
};

inline StoreHeader encode(const StoreRequest& request) {
  StoreHeader h = {};
  h[0] = static_cast<char>(request.op);
  std::memcpy(&h[2], &request.key_nbytes, 2);
  std::memcpy(&h[4], &request.value_nbytes, 4);
  std::memcpy(&h[8], &request.delta, 8);
  return h;
}
inline StoreHeader encode(const StoreReply& reply) {
  StoreHeader h = {};
  h[0] = static_cast<char>(reply.code);
  std::memcpy(&h[4], &reply.value_nbytes, 4);
  std::memcpy(&h[8], &reply.number, 8);
  return h;
}

inline Result<StoreRequest> decode_request(const StoreHeader& h) {
  StoreRequest request;
  request.op = static_cast<StoreOp>(h[0]);
  std::memcpy(&request.key_nbytes, &h[2], 2);
  std::memcpy(&request.value_nbytes, &h[4], 4);
  std::memcpy(&request.delta, &h[8], 8);
  const bool known = request.op >= StoreOp::kSet && request.op <= StoreOp::kEraseAll;
  const bool sizes =
      request.key_nbytes >= 1 && request.key_nbytes <= kMaxKeyBytes && request.value_nbytes <= kMaxValueBytes;
  const bool fields =
      h[1] == 0 && (request.op == StoreOp::kSet || request.value_nbytes == 0) &&
      (request.op == StoreOp::kAdd || request.delta == 0 || (waits(request.op) && request.delta == kAtOnce));
  if (known && sizes && fields) return request;
  return Status(Code::kPeerFailure, "malformed store request");
}
inline Result<StoreReply> decode_reply(const StoreHeader& h) {
  StoreReply reply;
  reply.code = static_cast<Code>(h[0]);
  std::memcpy(&reply.value_nbytes, &h[4], 4);
  std::memcpy(&reply.number, &h[8], 8);
  if (reply.code <= Code::kInternal && h[1] == 0 && h[2] == 0 && h[3] == 0 &&
      reply.value_nbytes <= kMaxValueBytes)
    return reply;
  return Status(Code::kPeerFailure, "malformed store reply");
}

}  // namespace pc
