#include "wire/hello.h"

#include <algorithm>
#include <string>

#include "wire/frame.h"
#include "wire/little_endian.h"

namespace pc {
namespace {

constexpr uint32_t kHelloMagic = 0x31484350;   // "PCH1" little-endian
constexpr uint8_t kEncrypts = 1, kHasAes = 2;  // bits of byte 6

Status refused(const Hello& ours, const Hello& theirs, const std::string& why) {
  const std::string sender = theirs.rank >= 0              ? "rank " + std::to_string(theirs.rank)
                             : theirs.role == Role::kStore ? std::string("the store or its client")
                                                           : std::string("a process without rank");
  return Status(Code::kMismatch, "refused " + sender + ": " + why)
      .with_rank(ours.rank)
      .with_peer(theirs.rank);
}

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kData: return "data";
    case Role::kControl: return "control";
    case Role::kStore: return "store";
  }
  return "unknown";
}

void encode(const Hello& hello, HelloBytes& out) {
  out.fill(std::byte{0});
  std::byte* const b = out.data();
  put<uint32_t>(b, kHelloMagic);
  put<uint8_t>(b + 4, kProtocolVersion);
  put<uint8_t>(b + 5, static_cast<uint8_t>(hello.role));
  put<uint8_t>(b + 6, static_cast<uint8_t>((hello.encrypts ? kEncrypts : 0) | (hello.has_aes ? kHasAes : 0)));
  put<uint8_t>(b + 7, hello.number);
  put<uint32_t>(b + 8, static_cast<uint32_t>(hello.rank));
  put<uint32_t>(b + 12, static_cast<uint32_t>(hello.peer));
  put<uint32_t>(b + 16, static_cast<uint32_t>(hello.size));
  put<uint32_t>(b + 20, hello.epoch);
  std::copy(hello.job.begin(), hello.job.end(), b + 24);
  std::copy(hello.key.begin(), hello.key.end(), b + 40);
  std::copy(hello.nonce.begin(), hello.nonce.end(), b + 48);
  std::copy(hello.public_key.begin(), hello.public_key.end(), b + 64);
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes) {
  const std::byte* const b = bytes.data();
  const auto broken = [](const std::string& why) { return Status(Code::kPeerFailure, why); };
  if (get<uint32_t>(b) != kHelloMagic) return broken("this is no pycollective connection: wrong magic");
  if (const uint8_t version = get<uint8_t>(b + 4); version != kProtocolVersion) {
    return Status(Code::kMismatch, "the peer speaks protocol version " + std::to_string(version) +
                                       ", this process version " + std::to_string(kProtocolVersion) +
                                       ": install the same pycollective release on every host");
  }
  const uint8_t role = get<uint8_t>(b + 5);
  if (role < static_cast<uint8_t>(Role::kData) || role > static_cast<uint8_t>(Role::kStore))
    return broken("hello with the unknown role " + std::to_string(role));
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  const uint8_t features = get<uint8_t>(b + 6);
  Hello hello;
  hello.encrypts = (features & kEncrypts) != 0;
  hello.has_aes = (features & kHasAes) != 0;
  if ((features & ~(kEncrypts | kHasAes)) != 0 ||
      (role != static_cast<uint8_t>(Role::kData) && b[7] != std::byte{0}) ||
      !std::all_of(b + 44, b + 48, is_zero) ||
      (!hello.encrypts && !std::all_of(b + 64, b + kHelloBytes, is_zero)))
    return broken("hello with reserved bytes that are not zero");
  hello.role = static_cast<Role>(role);
  hello.number = get<uint8_t>(b + 7);
  hello.rank = static_cast<Rank>(get<uint32_t>(b + 8));
  hello.peer = static_cast<Rank>(get<uint32_t>(b + 12));
  hello.size = static_cast<Rank>(get<uint32_t>(b + 16));
  hello.epoch = get<uint32_t>(b + 20);
  std::copy(b + 24, b + 40, hello.job.begin());
  std::copy(b + 40, b + 44, hello.key.begin());
  std::copy(b + 48, b + 64, hello.nonce.begin());
  std::copy(b + 64, b + kHelloBytes, hello.public_key.begin());
  if (hello.size < 0 || hello.rank < -1 || (hello.rank >= 0 && hello.rank >= hello.size) || hello.peer < -1) {
    return broken("hello of an impossible rank " + std::to_string(hello.rank) + " in a world of " +
                  std::to_string(hello.size));
  }
  return hello;
}

Status compatible(const Hello& ours, const Hello& theirs) {
  const auto number = [](Rank rank) { return std::to_string(rank); };
  if (ours.job != theirs.job) {
    return refused(
        ours, theirs,
        "it belongs to job " + fingerprint(theirs.job) + ", we to job " + fingerprint(ours.job) +
            ": two jobs use the same address, or ranks of one were given different sizes; give each job its "
            "own port, and all its ranks the same size");
  }
  if (ours.role != theirs.role) {
    return refused(ours, theirs,
                   "it opened a " + std::string(name_of(theirs.role)) + " connection where we expect a " +
                       std::string(name_of(ours.role)) +
                       " connection: it was given the wrong one of our addresses");
  }
  if (ours.encrypts != theirs.encrypts) {
    return refused(ours, theirs,
                   std::string(ours.encrypts ? "we encrypt and it does not" : "it encrypts and we do not") +
                       ": give every rank the same PYCOLLECTIVE_SECURITY");
  }
  if (ours.epoch != theirs.epoch && ours.role == Role::kStore) {
    return refused(ours, theirs,
                   "it is of world " + std::to_string(theirs.epoch) + " of this job, we of world " +
                       std::to_string(ours.epoch) + ": each has a store of its own");
  }
  if (ours.epoch != theirs.epoch) {
    return refused(ours, theirs,
                   "it is in epoch " + std::to_string(theirs.epoch) + ", we are in epoch " +
                       std::to_string(ours.epoch) +
                       (theirs.epoch < ours.epoch ? ": the group went on without it; it must join again"
                                                  : ": the group went on without us; we must join again"));
  }
  if (theirs.rank >= 0 && ours.rank >= 0 && ours.size != theirs.size) {
    return refused(ours, theirs,
                   "it was started for a world of " + number(theirs.size) + " ranks, we for " +
                       number(ours.size) + ": start all ranks with the same size");
  }
  if (ours.role != Role::kStore && theirs.rank >= 0 && theirs.rank == ours.rank) {
    return refused(ours, theirs,
                   "it says that it is rank " + number(theirs.rank) + ", and so are we (rank " +
                       number(ours.rank) + "): give each process its own rank");
  }
  if (ours.role != Role::kStore &&
      ((ours.peer >= 0 && ours.peer != theirs.rank) || (theirs.peer >= 0 && theirs.peer != ours.rank))) {
    return refused(ours, theirs,
                   "it answers as rank " + number(theirs.rank) + " and looks for rank " +
                       number(theirs.peer) + ", we are rank " + number(ours.rank) + " and look for rank " +
                       number(ours.peer) + ": an address belongs to another process by now");
  }
  return Status::ok();
}

}  // namespace pc
