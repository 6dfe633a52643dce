// The protocol between a store client and the store server. Little-endian, one request at a time
// per connection:
//
//   first             the handshake (wire/handshake.h), role kStore; the client is the initiator
//   request           0  u8   operation: 1 set, 2 get, 3 add, 4 erase, 5 pop, 6 wait,
//                             7 erase all keys that begin with the key,
//                             8 list the keys that begin with the key, 9 compare and set, 10 append
//                     1  u8   0
//                     2  u16  key bytes, 1..4096; 0 is allowed too for 7 and 8
//                     4  u32  value bytes, at most 8 MiB; 0 for all but set, append,
//                             compare and set, list
//                     8  i64  add: the addend. get, pop, wait: 1 if a missing key is reported at
//                             once, 0 if the server waits for it. compare and set: the size of
//                             the expected value, which precedes the desired value.
//                             All other operations: 0
//                    16       key, then value. list: the value is the suffix of the last key of the
//                             previous page
//   reply             0  u8   0, or an error's Code, with its text as the value
//                     1  u8[3] 0
//                     4  u32  value bytes, at most 8 MiB
//                     8  i64  add: the new number. get, pop, wait: 1 if the key is missing.
//                             erase: 1 if the key existed. list: 1 if there are more keys
//                    16       value. list: the suffix of each key after the prefix
//                             (store/key_list.h). compare and set: the key's value now,
//                             or the expected value if the key is missing
//
// A waiting get, pop or wait is answered when the key exists, in the order of arrival. A client
// that no longer wants the answer closes the connection. Lengths are checked before memory is
// allocated for them, and memory grows with the bytes that have arrived.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "store/store.h"

namespace pc {

static_assert(std::endian::native == std::endian::little,
              "store/protocol.h copies fields as they lie in memory");

inline constexpr std::size_t kStoreHeaderBytes = 16;
using StoreHeader = std::array<char, kStoreHeaderBytes>;

struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  uint16_t key_nbytes = 0;
  uint32_t value_nbytes = 0;
  int64_t number = 0;
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
  std::memcpy(&h[8], &request.number, 8);
  return h;
}
inline StoreHeader encode(const StoreReply& reply) {
  StoreHeader h = {};
  h[0] = static_cast<char>(reply.code);
  std::memcpy(&h[4], &reply.value_nbytes, 4);
  std::memcpy(&h[8], &reply.number, 8);
  return h;
}

inline bool has_value(StoreOp op) {
  return op == StoreOp::kSet || op == StoreOp::kAppend || op == StoreOp::kCompareSet || op == StoreOp::kKeys;
}
inline bool number_fits(const StoreRequest& request) {
  if (request.op == StoreOp::kAdd || request.number == 0) return true;
  if (waits(request.op)) return request.number == kAtOnce;
  return request.op == StoreOp::kCompareSet && request.number > 0 && request.number <= request.value_nbytes;
}
inline Result<StoreRequest> decode_request(const StoreHeader& h) {
  StoreRequest request;
  request.op = static_cast<StoreOp>(h[0]);
  std::memcpy(&request.key_nbytes, &h[2], 2);
  std::memcpy(&request.value_nbytes, &h[4], 4);
  std::memcpy(&request.number, &h[8], 8);
  const bool known = request.op >= StoreOp::kSet && request.op <= StoreOp::kAppend;
  const bool lists = request.op == StoreOp::kKeys || request.op == StoreOp::kEraseAll;
  const bool sizes = (request.key_nbytes >= 1 || lists) && request.key_nbytes <= kMaxKeyBytes &&
                     request.value_nbytes <= kMaxValueBytes;
  const bool fields =
      h[1] == 0 && (has_value(request.op) || request.value_nbytes == 0) && number_fits(request);
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
