// The 64-byte header of everything that is sent on a connection after the handshake.
// docs/protocol.md is the specification; this file is its parser. No sockets, no state, no
// allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace pc {

inline constexpr uint32_t kFrameMagic = 0x31464350;  // "PCF1" little-endian
inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kTrailerBytes =
    4;  // CRC32C of a description or of a segment's payload; absent if there is no such data
inline constexpr std::size_t kMaxDescriptionBytes = 1024;
inline constexpr std::size_t kMaxSegmentBytes = 256UL * 1024;
inline constexpr std::size_t kEagerBytes = 64UL * 1024;  // larger messages use rendezvous (REQUEST / CLEAR)

enum class FrameType : uint8_t {
  kData = 1,     // one segment of a message
  kRequest = 2,  // "I have a message of message_nbytes for you"
  kClear = 3,    // "send it": the receive for exactly this message is posted
  kCredit = 4,   // "`offset` more bytes of eager messages may be sent"
  kGoodbye = 5,  // orderly end: nothing follows
  kNotice = 6,   // the state of a call on a rank (control plane)
  kDead = 7,     // a rank is known to be dead (control plane)
  kCancel = 8,  // a call is given up (control plane); class point-to-point: one side gave up a message (data)
  kPing = 9,    // heartbeat, and the answer to one (control plane)
};
// FrameHeader::flags. A flag that the frame's type does not define is an error.
inline constexpr uint8_t kFlagEager = 1;  // DATA: sent on credit, a whole message in one segment
inline constexpr uint8_t kFlagWithdrawn =
    2;  // CLEAR: withdraws the earlier CLEAR of this message. REQUEST: answers a CLEAR; no message follows
inline constexpr uint8_t kFlagByReceiver = 4;  // CANCEL of a message: the receiver gave it up, not the sender
// CANCEL of a message: answers the peer's CANCEL; no more frames of this message follow
inline constexpr uint8_t kFlagAnswer = 8;
inline constexpr uint8_t kFlagAsks = 1;  // NOTICE, PING: the receiver must answer
// NOTICE: the receiver must also report the position of its program
inline constexpr uint8_t kFlagAsksWhere = 2;
inline constexpr uint8_t kFlagWhereFollows =
    4;  // NOTICE, CANCEL of a call: the position of the sender's program follows
enum class StreamClass : uint8_t { kControl = 0, kCollective = 1, kPointToPoint = 2 };

// A stream separates messages that must not be mixed up. Within a stream, messages are matched by
// sequence and index, never by order of arrival, so no message waits for another one.
struct Stream {
  uint32_t group = 0;
  StreamClass klass = StreamClass::kCollective;
  uint32_t tag = 0;  // collective: the plan's lane; point-to-point: the user's tag
  bool operator==(const Stream&) const = default;
};
// Identifies one message. `sequence` is the number of the collective in the group, or the number of
// the point-to-point message for this peer and tag. `index` is the number of the message in its
// collective, counted per peer, stream and direction; it is 0 for point-to-point. `digest` is the
// fingerprint of the call.
struct MessageId {
  Stream stream;
  uint64_t sequence = 0;
  uint32_t index = 0;
  uint64_t digest = 0;
};
struct FrameHeader {
  FrameType type = FrameType::kData;
  uint8_t flags = 0;
  uint32_t epoch = 0;
  MessageId id;
  uint64_t message_nbytes = 0;  // size of the whole message
  // position of this segment in the message; kCredit: bytes granted; kCancel: the reason's Code
  uint64_t offset = 0;
  uint32_t segment_nbytes = 0;  // payload bytes after this header (kData: 0 only if the message is empty)
  // Number of bytes between header and payload that describe a point-to-point message, for a
  // receiver that does not know its type. Only a REQUEST and an eager DATA frame may have a
  // description.
  uint32_t description_nbytes = 0;
};
using HeaderBytes = std::array<std::byte, kHeaderBytes>;
void encode(const FrameHeader& header, HeaderBytes& out);
// Returns an error for invalid input, which may be hostile. Checks magic, version, header CRC,
// known type and class, that the segment is inside its message, and that it is not above
// kMaxSegmentBytes. Link checks whether the frame is allowed at this point.
Result<FrameHeader> decode(std::span<const std::byte, kHeaderBytes> bytes);
// Checks that the fields are consistent, for a header that was not read by decode().
Status check(const FrameHeader& header);

}  // namespace pc
