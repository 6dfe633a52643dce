// How much may be on its way between two ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/frame.h"

namespace pc {

struct LinkLimits {                              // equal on both sides; part of the protocol version
  std::size_t segment_bytes = kMaxSegmentBytes;  // at most kMaxSegmentBytes, a multiple of 64
  std::size_t eager_bytes = kEagerBytes;
  std::size_t credit_bytes =
      1024UL * 1024;  // unexpected eager bytes (headers counted) that a peer may have in our memory
  uint32_t max_requests = 4096;  // unanswered REQUESTs a peer may have with us
};

}  // namespace pc
