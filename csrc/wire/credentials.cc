#include "wire/credentials.h"

#include <sodium.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdio>

#include "wire/crc32c.h"
#include "wire/octets.h"

namespace pc {

JobKey::~JobKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

std::string fingerprint(const JobId& job) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(crc32c(job)));
  return text;
}

// Must equal key_id() of pycollective/bootstrap/key.py.
KeyId key_id(const JobKey& key) {
  constexpr unsigned char kPersonal[crypto_generichash_blake2b_PERSONALBYTES + 1] = "pycollective-kid";
  std::array<std::byte, 16> digest;
  crypto_generichash_blake2b_salt_personal(octets(digest.data()), digest.size(), octets(key.bytes().data()),
                                           key.bytes().size(), nullptr, 0, nullptr, kPersonal);
  return {digest[0], digest[1], digest[2], digest[3]};
}

std::string to_string(const KeyId& id) {
  char text[9];
  std::snprintf(text, sizeof text, "%02x%02x%02x%02x", std::to_integer<unsigned>(id[0]),
                std::to_integer<unsigned>(id[1]), std::to_integer<unsigned>(id[2]),
                std::to_integer<unsigned>(id[3]));
  return text;
}

Status fill_randomly(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR) return system_error("getrandom", errno);
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return Status::ok();
}

}  // namespace pc
