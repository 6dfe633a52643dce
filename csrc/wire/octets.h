// Bytes as unsigned char, the type that libsodium takes.
#pragma once

#include <cstddef>

namespace pc {

inline const unsigned char* octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
inline unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace pc
