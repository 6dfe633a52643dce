// Who is at the other end of a new connection, as it says itself: the first 96 bytes each way. Nothing in it is proven
// before the handshake is done. docs/protocol.md section 1 is the specification. No sockets, no allocation but for errors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "base/types.h"
#include "wire/credentials.h"

namespace pc {

enum class Role : uint8_t { kData = 1, kControl = 2, kStore = 3 };
std::string_view name_of(Role role);

inline constexpr uint32_t kEveryEpoch =
    ~uint32_t{0};  // of a store that serves them all, before it has heard which

struct Hello {
  Role role = Role::kData;
  uint8_t number = 0;  // of a data connection, where two ranks have several
  Rank rank = -1;      // the sender's, in the world; -1: not a rank (a store, a launcher)
  Rank peer = -1;      // whom it thinks it speaks with; -1: whoever it may be
  Rank size = 0;
  uint32_t epoch = 0;
  JobId job = {};
  KeyId key = {};
  bool encrypts = false, has_aes = false;
  std::array<std::byte, 16> nonce = {};
  std::array<std::byte, 32> public_key = {};  // X25519, of an initiator that encrypts; else zero
};
inline constexpr std::size_t kHelloBytes = 96;
using HelloBytes = std::array<std::byte, kHelloBytes>;
void encode(const Hello& hello, HelloBytes& out);
// Hostile input is an error, never a crash.
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes);
// Says why `theirs` cannot talk to `ours`: other job, world size, epoch or role, not the rank that was meant. OK if it can.
// Keys are not looked at.
Status compatible(const Hello& ours, const Hello& theirs);

}  // namespace pc
