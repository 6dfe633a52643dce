// Seals the bytes of one connection: encrypted, authenticated, in order. A record that was changed,
// left out, repeated or taken from another connection does not open.
//
//   record   0  u32  n, 1 to 65536: bytes sealed (authenticated, not encrypted)
//            4       n bytes, encrypted
//          4+n       tag, 16 bytes
//
// Uses AES-256-GCM if both processors have it, else ChaCha20-Poly1305 (RFC 8439). There is one key
// per direction, made by the handshake from the job's key and a Diffie-Hellman exchange (forward
// secret). The nonce is the record's number. docs/protocol.md section 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

namespace pc {

inline constexpr std::size_t kMaxSealedBytes = 64UL * 1024;
inline constexpr std::size_t kSealHeadBytes = 4, kSealTagBytes = 16;
inline constexpr std::size_t kSealOverheadBytes = kSealHeadBytes + kSealTagBytes;

enum class Cipher : uint8_t { kAes256Gcm, kChaCha20Poly1305 };
bool aes_available();  // on this processor

// One direction's key and record count. Thread-safety: none.
class SealKey {
 public:
  SealKey(Cipher cipher, std::span<const std::byte, 32> key);
  ~SealKey();
  SealKey(const SealKey&) = delete;
  SealKey& operator=(const SealKey&) = delete;
  // `record` has n + kSealOverheadBytes bytes. The n bytes from kSealHeadBytes on are the data,
  // which are encrypted in place.
  void seal(std::span<std::byte> record);
  // Decrypts a whole record in place; its data start at kSealHeadBytes. Returns an error if it is
  // not the next record that the peer sealed.
  Status open(std::span<std::byte> record);

 private:
  struct Secret;
  std::array<unsigned char, 12> next_nonce();
  const Cipher cipher_;
  std::unique_ptr<Secret> secret_;
  uint64_t count_ = 0;
};
// Returns the total size of the record with this head.
Result<std::size_t> sealed_record_nbytes(std::span<const std::byte, kSealHeadBytes> head);
void begin_sealed_record(std::span<std::byte> record);  // writes the length of the record

struct Seal {  // both directions of one connection
  SealKey sends, receives;
};

}  // namespace pc
