// Proves to both ends of a new connection that the other end has the job's key, before anything
// else is read.
//
//   initiator                                            acceptor
//   hello (96 bytes)                  ------------->
//                                     <-------------     hello (96), proof (32)
//   proof (32)                        ------------->
//                                     <-------------     decision (72)
//
// A proof is a BLAKE2b-256 hash of both hellos: nonces, ranks, roles, epoch, job, versions. Its key
// is derived from the job's key (libsodium's crypto_kdf), and differs for each direction. So no
// message can be changed, replayed or reflected. The acceptor's last message, which is hashed with
// a key too, says whether it accepts the connection: another process with the same rank may already
// be connected.
//
// Store and control connections are always encrypted, data connections on request. The initiator's
// hello and the decision then carry X25519 keys that were made for this connection, and all later
// bytes are sealed (wire/seal.h). The acceptor makes its key only after the initiator has proved
// itself, because making a key costs more than everything else that an unauthenticated connection
// can cause. Every part has a fixed size, and nothing is allocated for an unauthenticated
// connection. The specification is docs/protocol.md section 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "wire/credentials.h"
#include "wire/hello.h"
#include "wire/seal.h"

namespace pc {

inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kHelloAnswerBytes = kHelloBytes + kProofBytes;
inline constexpr std::size_t kDecisionBodyBytes =
    8 + 32;  // the decision itself, and the acceptor's public key
inline constexpr std::size_t kDecisionBytes = kDecisionBodyBytes + kProofBytes;

enum class Decision : uint8_t {
  kWelcome = 0,
  kRankTaken = 1,  // another process with the same rank is already connected
  kNotNeeded = 2,  // this rank expects no connection from the initiator
};

// One side of one handshake. Thread-safety: none. The owner of the connection sends and receives
// the bytes.
class Handshake {
 public:
  // `ours` describes this side; the nonce and the key id are filled in here. `credentials` must
  // outlive the handshake.
  static Result<Handshake> initiator(const Credentials& credentials, Hello ours);
  static Result<Handshake> acceptor(const Credentials& credentials, Hello ours);
  static Result<Handshake> initiator(const Credentials&&, Hello) = delete;
  static Result<Handshake> acceptor(const Credentials&&, Hello) = delete;

  // The bytes to write. The caller writes all of them before it reads, even after an error, because
  // they inform the other side of the reason.
  std::span<const std::byte> output() const { return {out_.data() + sent_, out_nbytes_ - sent_}; }
  void sent(std::size_t nbytes) { sent_ += nbytes; }
  // The buffer for the next bytes to read, never larger than the handshake needs. Empty if no bytes
  // are expected.
  std::span<std::byte> input() { return {in_.data() + received_, wanted_ - received_}; }
  // If this returns an error, the caller closes the connection once output() is empty.
  Status received(std::size_t nbytes);

  // Acceptor only: the other side has proved itself, and this side must decide whether to accept
  // it.
  bool must_decide() const { return state_ == State::kDeciding; }
  void decide(Decision decision);
  bool done() const { return state_ == State::kDone && output().empty(); }
  // Initiator only: the other side has proved itself and rejected this side. A retry does not help.
  bool rejected() const { return rejected_; }
  // has_received() returns true if any bytes have arrived. has_theirs() returns true once the other
  // side's hello has arrived, and theirs() returns this hello. It is authenticated once
  // must_decide() or done() is true.
  bool has_received() const { return has_theirs_ || received_ > 0; }
  bool has_theirs() const { return has_theirs_; }
  const Hello& theirs() const { return theirs_; }
  // Returns the seal for the rest of the connection, or null if the connection is not encrypted.
  // Call this once, when the handshake is done.
  std::unique_ptr<Seal> take_seal() { return std::move(seal_); }

 private:
  enum class State : uint8_t { kHello, kAnswer, kProof, kDeciding, kDecision, kDone, kFailed };
  using Bytes32 = std::array<std::byte, kProofBytes>;
  Handshake(const Credentials& credentials, const Hello& ours) : credentials_(&credentials), ours_(ours) {}
  static Result<Handshake> make(const Credentials& credentials, Hello ours);
  void choose_seal();  // decides whether to encrypt and which cipher to offer
  Status make_key_pair();
  Status read_hello();
  Status read_answer();
  Status read_proof();
  Status read_decision();
  Status take(std::span<const std::byte, kHelloBytes> hello);
  Status keys_differ() const;
  Status agree_on_seal(bool we_began);
  Bytes32 derive(uint64_t purpose) const;
  Bytes32 prove(uint64_t purpose, std::span<const std::byte> more = {}) const;
  void send(std::span<const std::byte> bytes);
  void await(State state, std::size_t nbytes);

  const Credentials* credentials_;
  Hello ours_, theirs_;
  JobKey private_key_;  // X25519, of this connection; wiped like a job's key
  std::unique_ptr<Seal> seal_;
  State state_ = State::kFailed;
  bool has_theirs_ = false, rejected_ = false;
  std::array<HelloBytes, 2> hellos_ = {};  // the initiator's, the acceptor's: the proofs cover both
  std::array<std::byte, kHelloAnswerBytes> in_ = {}, out_ = {};
  std::size_t received_ = 0, wanted_ = 0, sent_ = 0, out_nbytes_ = 0;
};
static_assert(sizeof(Handshake) <= 1024, "what a stranger costs");

}  // namespace pc
