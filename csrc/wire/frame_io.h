// What a Link and the frame I/O of its bytes hand each other, and how much may be on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/frame.h"
#include "wire/message.h"

namespace pc {

// Between two ranks.
struct LinkLimits {                              // equal on both sides; part of the protocol version
  std::size_t segment_bytes = kMaxSegmentBytes;  // at most kMaxSegmentBytes, a multiple of 64
  std::size_t eager_bytes = kEagerBytes;
  std::size_t credit_bytes =
      1024UL * 1024;             // unexpected eager bytes, with headers, that a peer may have here
  uint32_t max_requests = 4096;  // unanswered REQUESTs a peer may have with us
};

// A frame to write.
struct OutFrame {
  static constexpr std::size_t kMaxPieces = 64;  // enough for the 64 bytes that a segment must have
  static constexpr std::size_t kLeastCut = 8192;
  FrameHeader header;
  ConstIoVec payload;  // valid until written(), fail() or keep_unsent(); at most kMaxPieces; no trailer
  std::span<const std::byte>
      description;  // valid until the next call; goes between the two, with its trailer
};

// Where the payload of a frame that arrives goes.
struct PayloadDestination {
  std::span<std::byte> where;  // segment_nbytes bytes to put the payload; staging if it is consumed later
  bool is_final = false;       // it is not looked at there by the link: the receiver's own memory
};

// What a Link needs of the frame I/O that is asked to stop in the middle of a frame. Called from inside the
// Link's methods.
class FrameIo {
 public:
  // Payloads of frames that are out and not yet written: their memory is about to go. Copies what is still needed.
  virtual void keep_unsent() = 0;
  // The payload that is arriving belongs `there` from its next byte on (same size): it will not be used, only checked.
  virtual void redirect(std::span<std::byte> there) = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace pc
