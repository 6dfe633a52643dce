// CRC32C (Castagnoli, RFC 3720 appendix B.4). Detects damage that TCP's checksum misses. It is no
// authentication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pc {

// Satisfies crc32c(whole) == crc32c(tail, crc32c(head)). `crc` is 0 at the beginning. Uses hardware
// instructions if the machine has them.
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);
// Copies `data` to `to` and returns the checksum, in one pass: the data are read only once. `to`
// must hold data.size() bytes.
uint32_t crc32c_copy(std::byte* to, std::span<const std::byte> data, uint32_t crc = 0);
uint32_t crc32c_portable(std::span<const std::byte> data,
                         uint32_t crc = 0);  // for tests, and for machines without the instructions

}  // namespace pc
