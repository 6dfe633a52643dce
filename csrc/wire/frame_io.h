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
      1024UL * 1024;  // unexpected eager bytes, including headers, that this rank stores for the peer at most
  uint32_t max_requests = 4096;  // REQUESTs of the peer that this rank may leave unanswered
};

// A frame to write.
struct OutFrame {
  // even pieces of one byte fill the 64 bytes that a segment needs
  static constexpr std::size_t kMaxPieces = 64;
  static constexpr std::size_t kLeastCut = 8192;
  FrameHeader header;
  // Valid until written(), fail() or keep_unsent(). Has at most kMaxPieces pieces, and no trailer.
  ConstIoVec payload;
  std::span<const std::byte>
      description;  // valid until the next call; written between header and payload, with its trailer
};

// The destination of the payload of an arriving frame.
struct PayloadDestination {
  // Memory of segment_nbytes bytes for the payload; staging memory if it is consumed later.
  std::span<std::byte> where;
  bool is_final = false;  // true: the receiver's own memory, which the link does not read
};

// What a Link requires of frame I/O that may be stopped in the middle of a frame. Called from
// inside the Link's methods.
class FrameIo {
 public:
  // Copies what is still needed of the payloads of frames that are out (returned by next_frame(),
  // not yet written): their memory is about to become invalid.
  virtual void keep_unsent() = 0;
  // Makes the rest of the arriving payload go to `there`, which has the same size as the old
  // destination. The payload is then only checked, not used.
  virtual void redirect(std::span<std::byte> there) = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace pc
