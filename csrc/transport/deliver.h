// Delivers a frame from one end of a link to the other end when both ends are in this process.
#pragma once

#include <cstring>
#include <optional>

#include "wire/link.h"

namespace pc {

// Returns OK, or the first error of either end.
inline Status deliver(const OutFrame& frame, Link& to) {
  const Result<PayloadDestination> destination = to.header_arrived(frame.header, frame.description);
  if (!destination.is_ok()) return destination.status();
  if (const std::optional<std::span<const std::byte>> together = frame.payload.together())
    return to.payload_arrived_at(*together);
  std::byte* next = destination.value().where.data();
  frame.payload.each([&](std::span<const std::byte> piece) {
    std::memcpy(next, piece.data(), piece.size());
    next += piece.size();
  });
  return to.payload_arrived();
}

}  // namespace pc
