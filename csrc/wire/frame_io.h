// The types that a Link and its frame I/O pass to each other, and the limits of data in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/frame.h"
#include "wire/message.h"

namespace pc {

// Limits between two ranks. They must be equal on both sides, and are part of the protocol version.
struct LinkLimits {
  std::size_t segment_bytes = kMaxSegmentBytes;  // at most kMaxSegmentBytes, a multiple of 64
  std::size_t eager_bytes = kEagerBytes;
  std::size_t credit_bytes =
      1024UL * 1024;  // most unexpected eager bytes, including headers, that this rank stores for the peer
  uint32_t max_requests = 4096;  // REQUESTs of the peer that this rank may leave unanswered
};

// A frame to write.
struct OutFrame {
  // enough for the smallest segment, 64 bytes, even if each piece has only one byte
  static constexpr std::size_t kMaxPieces = 64;
  static constexpr std::size_t kLeastCut = 8192;
  FrameHeader header;
  // Valid until written(), fail() or keep_unsent(). Has at most kMaxPieces pieces, and no trailer.
  ConstIoVec payload;
  std::span<const std::byte>
      // valid until the next call of a Link method; written before the payload, with its trailer
      description;
};

// The destination of the payload of an arriving frame.
struct PayloadDestination {
  // Memory of segment_nbytes bytes for the payload. It is staging memory if the payload is passed
  // to a consumer or dropped.
  std::span<std::byte> where;
  bool is_final = false;  // true: `where` is the receiver's own memory, and the link does not read it
};

// What a Link requires of frame I/O that can stop in the middle of a frame. Called from inside the
// Link's methods.
class FrameIo {
 public:
  // Copies the unwritten rest of the payloads of frames that are out (returned by next_frame(), not
  // yet written), because the memory of one of them is about to become invalid.
  virtual void keep_unsent() = 0;
  // Makes the rest of the arriving payload go to `there`, which has the same size as the old
  // destination. The payload is then only checked, not used.
  virtual void redirect(std::span<std::byte> there) = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace pc
