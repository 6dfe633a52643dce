#include "wire/seal.h"

#include <sodium.h>

#include <algorithm>
#include <string>

#include "wire/little_endian.h"
#include "wire/octets.h"

namespace pc {

bool aes_available() { return sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() == 1; }

struct SealKey::Secret {
  crypto_aead_aes256gcm_state aes;  // needs 16-byte alignment, which operator new provides
  std::array<unsigned char, 32> chacha;
};

SealKey::SealKey(Cipher cipher, std::span<const std::byte, 32> key)
    : cipher_(cipher),
      secret_(std::make_unique<Secret>()) {
  const auto* const bytes = octets(key.data());
  if (cipher_ == Cipher::kAes256Gcm) crypto_aead_aes256gcm_beforenm(&secret_->aes, bytes);
  std::copy_n(bytes, key.size(), secret_->chacha.begin());
}

SealKey::~SealKey() { sodium_memzero(secret_.get(), sizeof *secret_); }

std::array<unsigned char, 12> SealKey::next_nonce() {
  std::array<unsigned char, 12> nonce = {};
  put<uint64_t>(reinterpret_cast<std::byte*>(nonce.data()), count_++);
  return nonce;
}

void SealKey::seal(std::span<std::byte> record) {
  begin_sealed_record(record);
  const std::size_t nbytes = record.size() - kSealOverheadBytes;
  unsigned char* const head = octets(record.data());
  unsigned char* const body = head + kSealHeadBytes;
  const std::array<unsigned char, 12> nonce = next_nonce();
  if (cipher_ == Cipher::kAes256Gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(body, body + nbytes, nullptr, body, nbytes, head,
                                                   kSealHeadBytes, nullptr, nonce.data(), &secret_->aes);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(body, body + nbytes, nullptr, body, nbytes, head,
                                                       kSealHeadBytes, nullptr, nonce.data(),
                                                       secret_->chacha.data());
  }
}

Status SealKey::open(std::span<std::byte> record) {
  const std::size_t nbytes = record.size() - kSealOverheadBytes;
  unsigned char* const head = octets(record.data());
  unsigned char* const body = head + kSealHeadBytes;
  const std::array<unsigned char, 12> nonce = next_nonce();
  const int bad =
      cipher_ == Cipher::kAes256Gcm
          ? crypto_aead_aes256gcm_decrypt_detached_afternm(body, nullptr, body, nbytes, body + nbytes, head,
                                                           kSealHeadBytes, nonce.data(), &secret_->aes)
          : crypto_aead_chacha20poly1305_ietf_decrypt_detached(body, nullptr, body, nbytes, body + nbytes,
                                                               head, kSealHeadBytes, nonce.data(),
                                                               secret_->chacha.data());
  if (bad == 0) return Status::ok();
  return Status(Code::kPeerFailure, "an encrypted record does not open: it was changed on the way");
}

Result<std::size_t> sealed_record_nbytes(std::span<const std::byte, kSealHeadBytes> head) {
  const uint32_t nbytes = get<uint32_t>(head.data());
  if (nbytes >= 1 && nbytes <= kMaxSealedBytes) return nbytes + kSealOverheadBytes;
  return Status(Code::kPeerFailure, "an encrypted record of " + std::to_string(nbytes) + " bytes: 1 to " +
                                        std::to_string(kMaxSealedBytes) + " are allowed");
}

void begin_sealed_record(std::span<std::byte> record) {
  put<uint32_t>(record.data(), static_cast<uint32_t>(record.size() - kSealOverheadBytes));
}

}  // namespace pc
