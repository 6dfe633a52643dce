// The identity that the other end of a new connection claims: the first 96 bytes each way. Nothing
// in it is proven before the handshake is done. docs/protocol.md section 1 is the specification. No
// sockets, no allocation except for errors.
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
    // epoch of a store, which serves all epochs; the epoch in the initiator's hello replaces it
    ~uint32_t{0};

struct Hello {
  Role role = Role::kData;
  uint8_t number = 0;  // index of a data connection, if two ranks have several
  Rank rank = -1;      // world rank of the sender; -1: not a rank (a store, a launcher)
  Rank peer = -1;      // the rank that the sender expects at the other end; -1: any
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
// Returns an error for invalid input, which may be hostile.
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes);
// Returns an error that explains why the two sides do not fit together: other job, world size,
// epoch or role, or not the intended rank. Returns OK if they fit. Does not compare keys.
Status compatible(const Hello& ours, const Hello& theirs);

}  // namespace pc
