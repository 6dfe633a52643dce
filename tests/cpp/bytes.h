// Bytes that tests send, reduce and compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace pc {

using Bytes = std::vector<std::byte>;

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kPad = 64;  // room beside an array, and the alignment of every vector

// Equal seeds give equal bytes.
inline Bytes pattern(std::size_t nbytes, uint64_t seed) {
  Bytes bytes(nbytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

inline Bytes random_bytes(std::mt19937_64& random, std::size_t nbytes) {
  Bytes bytes((nbytes + 7) / 8 * 8);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t bits = random();
    std::memcpy(&bytes[i], &bits, sizeof bits);
  }
  bytes.resize(nbytes);
  return bytes;
}

}  // namespace pc
