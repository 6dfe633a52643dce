// What a Link and its frame I/O pass to each other, and the limits of data in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/frame.h"
#include "wire/message.h"

namespace pc {

// Limits between two ranks.
struct LinkLimits {                              // equal on both sides; part of the protocol version
  std::size_t segment_bytes = kMaxSegmentBytes;  // at most kMaxSegmentBytes, a multiple of 64
  std::size_t eager_bytes = kEagerBytes;
  std::size_t credit_bytes =
      1024UL * 1024;             // unexpected eager bytes, with headers, that the peer may store here
  uint32_t max_requests = 4096;  // REQUESTs of the peer that this rank has not answered
};

// A frame to write.
struct OutFrame {
  static constexpr std::size_t kMaxPieces = 64;  // enough for the 64 bytes that a segment must have
  static constexpr std::size_t kLeastCut = 8192;
  FrameHeader header;
  ConstIoVec payload;  // valid until written(), fail() or keep_unsent(); at most kMaxPieces; without trailer
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
  // The payload memory of frames that are out and not yet written is about to become invalid.
  // Copies what is still needed.
  virtual void keep_unsent() = 0;
  // The rest of the payload that is arriving must go to `there` (same size). It is only checked,
  // not used.
  virtual void redirect(std::span<std::byte> there) = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace pc
