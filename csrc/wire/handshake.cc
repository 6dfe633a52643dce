#include "wire/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <string>

#include "wire/octets.h"

namespace pc {
namespace {

// Purposes of the keys derived from the job's key, so that no proof can be used as another one.
constexpr uint64_t kInitiator = 1, kAcceptor = 2, kDecisionKey = 3, kSealing = 4;
constexpr char kContext[crypto_kdf_CONTEXTBYTES + 1] = "pc-hands";
static_assert(crypto_kdf_KEYBYTES == JobKey::kBytes);

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {  // in constant time
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status refusal(Decision decision, const Hello& ours, const Hello& theirs) {
  const std::string us = "rank " + std::to_string(ours.rank), them = "rank " + std::to_string(theirs.rank);
  switch (decision) {
    case Decision::kWelcome: return Status::ok();
    case Decision::kRankTaken:
      return Status(Code::kMismatch, "another process is connected to " + them + " as " + us +
                                         " already: give each process its own rank");
    case Decision::kNotNeeded:
      return Status(Code::kMismatch, them + " sees no reason why " + us + " should call it");
  }
  return Status(Code::kPeerFailure,
                "handshake: unknown decision " + std::to_string(static_cast<int>(decision)));
}

}  // namespace

Result<Handshake> Handshake::make(const Credentials& credentials, Hello ours) {
  if (sodium_init() < 0) return Status(Code::kInternal, "libsodium does not start");
  ours.key = key_id(credentials.key);
  ours.job = credentials.job;
  PC_TRY(fill_randomly(ours.nonce));
  return Handshake(credentials, ours);
}

// Called once the role is known. Store and control connections are always sealed: otherwise an
// attacker that relays a handshake could continue in another rank's name on the connections that
// control everything else.
void Handshake::choose_seal() {
  ours_.encrypts = credentials_->encrypts || ours_.role != Role::kData;
  ours_.has_aes = ours_.encrypts && aes_available();
}

Status Handshake::make_key_pair() {
  if (!ours_.encrypts) return Status::ok();
  JobKey::Bytes secret;
  PC_TRY(fill_randomly(secret));
  private_key_ = JobKey(secret);
  sodium_memzero(secret.data(), secret.size());
  crypto_scalarmult_base(octets(ours_.public_key.data()), octets(private_key_.bytes().data()));
  return Status::ok();
}

Result<Handshake> Handshake::initiator(const Credentials& credentials, Hello ours) {
  PC_ASSIGN_OR_RETURN(Handshake made, make(credentials, ours));
  made.choose_seal();
  PC_TRY(made.make_key_pair());
  encode(made.ours_, made.hellos_[0]);
  made.send(made.hellos_[0]);
  made.await(State::kAnswer, kHelloAnswerBytes);
  return made;
}

Result<Handshake> Handshake::acceptor(const Credentials& credentials, Hello ours) {
  PC_ASSIGN_OR_RETURN(Handshake made, make(credentials, ours));
  made.await(State::kHello, kHelloBytes);
  return made;
}

void Handshake::send(std::span<const std::byte> bytes) {
  if (output().empty()) sent_ = out_nbytes_ = 0;
  std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<std::ptrdiff_t>(out_nbytes_));
  out_nbytes_ += bytes.size();
}

void Handshake::await(State state, std::size_t nbytes) {
  state_ = state;
  received_ = 0;
  wanted_ = nbytes;
}

Handshake::Bytes32 Handshake::derive(uint64_t purpose) const {
  Bytes32 key;
  crypto_kdf_derive_from_key(octets(key.data()), key.size(), purpose, kContext,
                             octets(credentials_->key.bytes().data()));
  return key;
}

// Derives keys for both directions from both hellos, the job's key, and a shared secret that no
// other process can learn, even later.
Status Handshake::agree_on_seal(bool we_began) {
  if (!ours_.encrypts) return Status::ok();
  Bytes32 key = derive(kSealing), shared;
  const int bad = crypto_scalarmult(octets(shared.data()), octets(private_key_.bytes().data()),
                                    octets(theirs_.public_key.data()));
  if (bad != 0) return Status(Code::kPeerFailure, "handshake: a public key that is none");
  std::array<std::byte, 64> keys;
  crypto_generichash_state state;
  crypto_generichash_init(&state, octets(key.data()), key.size(), keys.size());
  crypto_generichash_update(&state, octets(shared.data()), shared.size());
  for (const HelloBytes& hello : hellos_)
    crypto_generichash_update(&state, octets(hello.data()), hello.size());
  // added separately: it is in neither hello
  const Bytes32& acceptors = we_began ? theirs_.public_key : ours_.public_key;
  crypto_generichash_update(&state, octets(acceptors.data()), acceptors.size());
  crypto_generichash_final(&state, octets(keys.data()), keys.size());
  const Cipher cipher = ours_.has_aes && theirs_.has_aes ? Cipher::kAes256Gcm : Cipher::kChaCha20Poly1305;
  const auto from_initiator = std::span<const std::byte, 64>(keys).first<32>();
  const auto from_acceptor = std::span<const std::byte, 64>(keys).last<32>();
  seal_.reset(new Seal{{cipher, we_began ? from_initiator : from_acceptor},
                       {cipher, we_began ? from_acceptor : from_initiator}});
  for (const std::span<std::byte> secret :
       {std::span<std::byte>(key), std::span<std::byte>(shared), std::span<std::byte>(keys)})
    sodium_memzero(secret.data(), secret.size());
  return Status::ok();
}

Handshake::Bytes32 Handshake::prove(uint64_t purpose, std::span<const std::byte> more) const {
  Bytes32 key = derive(purpose), proof;
  crypto_generichash_state state;
  crypto_generichash_init(&state, octets(key.data()), key.size(), proof.size());
  for (const HelloBytes& hello : hellos_)
    crypto_generichash_update(&state, octets(hello.data()), hello.size());
  crypto_generichash_update(&state, octets(more.data()), more.size());
  crypto_generichash_final(&state, octets(proof.data()), proof.size());
  sodium_memzero(key.data(), key.size());
  return proof;
}

Status Handshake::received(std::size_t nbytes) {
  received_ += nbytes;
  if (received_ < wanted_) return Status::ok();
  const auto read = [this] {
    switch (state_) {
      case State::kHello: return read_hello();
      case State::kAnswer: return read_answer();
      case State::kProof: return read_proof();
      case State::kDecision: return read_decision();
      default: return Status(Code::kInternal, "handshake: nothing was awaited");
    }
  };
  Status status = read();
  if (!status.is_ok()) await(State::kFailed, 0);
  return status;
}

Status Handshake::take(std::span<const std::byte, kHelloBytes> hello) {
  PC_ASSIGN_OR_RETURN(theirs_, decode_hello(hello));
  has_theirs_ = true;
  return Status::ok();
}

Status Handshake::keys_differ() const {
  return Status(Code::kMismatch,
                "the keys differ: ours is " + to_string(ours_.key) + " (from " + credentials_->key_source +
                    "), theirs " + to_string(theirs_.key) +
                    "; give all hosts the same key file, by PYCOLLECTIVE_KEY_FILE or by copying it")
      .with_rank(ours_.rank)
      .with_peer(theirs_.rank);
}

Status Handshake::read_hello() {
  if (Status taken = take(std::span(in_).first<kHelloBytes>()); !taken.is_ok()) {
    // the peer has another version of pycollective, and must be informed of this one
    if (taken.code() == Code::kMismatch) {
      encode(ours_, hellos_[1]);
      send(hellos_[1]);
      send(Bytes32{});
    }
    return taken;
  }
  std::copy_n(in_.begin(), kHelloBytes, hellos_[0].begin());
  // An incompatible peer receives an answer, too, so that both sides can report the difference.
  if (ours_.epoch == kEveryEpoch) ours_.epoch = theirs_.epoch;
  if (theirs_.role == Role::kControl && ours_.role == Role::kData) ours_.role = Role::kControl;
  ours_.peer = theirs_.rank;
  choose_seal();
  encode(ours_, hellos_[1]);
  const Status fits = compatible(ours_, theirs_);
  const bool same_key = ours_.key == theirs_.key;
  send(hellos_[1]);
  send(same_key ? prove(kAcceptor) : Bytes32{});
  if (!same_key) return keys_differ();
  PC_TRY(fits);
  await(State::kProof, kProofBytes);
  return Status::ok();
}

Status Handshake::read_answer() {
  const auto hello = std::span(in_).first<kHelloBytes>();
  PC_TRY(take(hello));
  std::copy(hello.begin(), hello.end(), hellos_[1].begin());
  if (ours_.key != theirs_.key) return keys_differ();
  if (!same_bytes(prove(kAcceptor), std::span(in_).subspan(kHelloBytes, kProofBytes))) {
    return Status(Code::kPeerFailure,
                  "it does not have the job's key: an impostor, or the bytes were changed on the way");
  }
  PC_TRY(compatible(ours_, theirs_));
  send(prove(kInitiator));
  await(State::kDecision, kDecisionBytes);
  return Status::ok();
}

Status Handshake::read_proof() {
  if (!same_bytes(prove(kInitiator), std::span(in_).first<kProofBytes>())) {
    return Status(Code::kPeerFailure,
                  "it does not have the job's key: an impostor, or the bytes were changed on the way");
  }
  PC_TRY(make_key_pair());
  PC_TRY(agree_on_seal(false));
  await(State::kDeciding, 0);
  return Status::ok();
}

void Handshake::decide(Decision decision) {
  std::array<std::byte, kDecisionBodyBytes> body = {static_cast<std::byte>(decision)};
  std::copy(ours_.public_key.begin(), ours_.public_key.end(), body.begin() + 8);
  send(body);
  send(prove(kDecisionKey, body));
  await(decision == Decision::kWelcome ? State::kDone : State::kFailed, 0);
}

Status Handshake::read_decision() {
  const auto body = std::span(in_).first<kDecisionBodyBytes>();
  if (!same_bytes(prove(kDecisionKey, body), std::span(in_).subspan<kDecisionBodyBytes, kProofBytes>()))
    return Status(Code::kPeerFailure, "the decision of its handshake was changed on the way");
  Status status = refusal(static_cast<Decision>(body[0]), ours_, theirs_);
  rejected_ = !status.is_ok();
  std::copy(body.begin() + 8, body.end(), theirs_.public_key.begin());
  if (status.is_ok()) PC_TRY(agree_on_seal(true));
  await(State::kDone, 0);
  return status;
}

}  // namespace pc
