// Messages with descriptors between processes of one host (SCM_RIGHTS over a SOCK_SEQPACKET
// socket). Sizes and counts are bounded before anything is received, and every received descriptor
// is owned at once.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace pc {

inline constexpr std::size_t kMostDescriptors = 253;  // in one message: the kernel's SCM_MAX_FD

// send_message() and receive_message() do not block. send_message() returns false if the socket is
// full or too many descriptors are in flight; the caller then has to try again.
Result<bool> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors);

struct DescriptorMessage {
  std::vector<Fd> descriptors;  // closed on exec
};
// Receives a message of exactly `into.size()` bytes with at most `most_descriptors` descriptors.
// Returns kMismatch for any other message, and if this process cannot open that many descriptors.
// Returns kPeerFailure if the connection was closed, and nullopt if no message has arrived yet.
Result<std::optional<DescriptorMessage>> receive_message(int socket, std::span<std::byte> into,
                                                         std::size_t most_descriptors);

}  // namespace pc
