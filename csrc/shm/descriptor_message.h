// Messages with descriptors between processes of one host (SCM_RIGHTS over a SOCK_SEQPACKET socket). What comes from outside is
// bounded before it is taken, and every descriptor that came is owned at once.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace pc {

inline constexpr std::size_t kMostDescriptors = 253;  // in one message: the kernel's SCM_MAX_FD

// Both never block. False: not now, try again when the socket is writable; also where too many descriptors are under way.
Result<bool> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors);

struct DescriptorMessage {
  std::vector<Fd> descriptors;  // closed on exec
};
// A message of exactly `into.size()` bytes with at most so many descriptors; any other is kMismatch, and so is one whose
// descriptors this process has no room for. The end of the connection is kPeerFailure. Empty: nothing has come yet.
Result<std::optional<DescriptorMessage>> receive_message(int socket, std::span<std::byte> into,
                                                         std::size_t most_descriptors);

}  // namespace pc
