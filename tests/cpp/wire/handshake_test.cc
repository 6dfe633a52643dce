// Only two processes with the same key and job and matching hellos complete the handshake, whatever
// is between them.
#include "wire/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bytes.h"
#include "conformance/raw_connection.h"

namespace pc {
namespace {

using testing::credentials_of;
// Sees, and may change, the messages on the wire. `step`: 0 hello, 1 answer, 2 proof, 3 decision.
using Middle = std::function<void(int step, Bytes& bytes)>;

const Credentials kOurs = credentials_of(1);
const Hello kCaller{.role = Role::kData, .rank = 2, .peer = 1, .size = 4, .epoch = 3};
const Hello kCalled{.role = Role::kData, .rank = 1, .size = 4, .epoch = 3};

struct Outcome {
  Status initiator, acceptor;
  std::unique_ptr<Seal> initiators, acceptors;
  bool initiator_done = false, acceptor_done = false;
  bool refused() const { return !initiator_done && !(acceptor_done && initiator.is_ok()); }
};

Bytes take(Handshake& from) {
  const std::span<const std::byte> all = from.output();
  Bytes bytes(all.begin(), all.end());
  from.sent(bytes.size());
  return bytes;
}

// Passes one byte at a time if `slow`, so that the state machine sees every split.
Status give(Handshake& to, const Bytes& bytes, bool slow = false) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::span<std::byte> room = to.input();
    if (room.empty()) return Status(Code::kInternal, "more bytes than were awaited");
    const std::size_t n = slow ? 1 : std::min(room.size(), bytes.size() - at);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, room.begin());
    at += n;
    PC_TRY(to.received(n));
  }
  return Status::ok();
}

Outcome shake(const Credentials& caller, const Credentials& called, const Hello& from = kCaller,
              const Hello& to = kCalled, const Middle& middle = {}, Decision decision = Decision::kWelcome,
              bool slow = false) {
  Handshake a = Handshake::initiator(caller, from).value(), b = Handshake::acceptor(called, to).value();
  Outcome out;
  for (int step = 0; step < 4; ++step) {
    Handshake& sender = step % 2 == 0 ? a : b;
    Handshake& receiver = step % 2 == 0 ? b : a;
    Bytes bytes = take(sender);
    if (bytes.empty()) break;
    if (middle) middle(step, bytes);
    Status& status = step % 2 == 0 ? out.acceptor : out.initiator;
    status = give(receiver, bytes, slow);
    if (b.must_decide()) b.decide(decision);
  }
  out.initiator_done = a.done() && out.initiator.is_ok();
  out.acceptor_done = b.done() && out.acceptor.is_ok();
  if (out.initiator_done) out.initiators = a.take_seal();
  if (out.acceptor_done) out.acceptors = b.take_seal();
  return out;
}

TEST(Handshake, TwoWithOneKeyGetThroughAndKnowEachOther) {
  for (const bool slow : {false, true}) {
    const Outcome out =
        shake(credentials_of(1), credentials_of(1), kCaller, kCalled, {}, Decision::kWelcome, slow);
    EXPECT_TRUE(out.initiator_done) << out.initiator.to_string();
    EXPECT_TRUE(out.acceptor_done) << out.acceptor.to_string();
  }
  Hello control = kCaller;
  control.role = Role::kControl;
  EXPECT_TRUE(shake(credentials_of(1), credentials_of(1), control).initiator_done)
      << "a listener of ranks takes both";
  const auto at_store = [](uint32_t epoch) {
    return shake(credentials_of(1), credentials_of(1), {.role = Role::kStore, .epoch = 5},
                 {.role = Role::kStore, .epoch = epoch})
        .initiator_done;
  };
  EXPECT_TRUE(at_store(kEveryEpoch)) << "a launcher's store outlives epochs";
  EXPECT_TRUE(at_store(5));
  EXPECT_FALSE(at_store(4));
}

Bytes sealed(SealKey& key, const std::string& text) {
  Bytes record(text.size() + kSealOverheadBytes);
  std::memcpy(record.data() + kSealHeadBytes, text.data(), text.size());
  key.seal(record);
  return record;
}

TEST(Handshake, WithEncryptionBothSidesGetKeysThatFitNoOtherConnection) {
  const Credentials encrypts = credentials_of(1, 1, true);
  const Outcome one = shake(encrypts, encrypts), other = shake(encrypts, encrypts);
  ASSERT_TRUE(one.initiators && one.acceptors && other.initiators && other.acceptors);
  const auto opens = [](SealKey& sends, SealKey& receives) {
    Bytes record = sealed(sends, "some text");
    return receives.open(record).is_ok() && std::memcmp(record.data() + kSealHeadBytes, "some text", 9) == 0;
  };
  EXPECT_TRUE(opens(one.initiators->sends, one.acceptors->receives));
  EXPECT_TRUE(opens(one.acceptors->sends, one.initiators->receives));
  EXPECT_FALSE(opens(one.initiators->sends, one.initiators->receives)) << "a mirror";
  EXPECT_FALSE(opens(other.initiators->sends, one.acceptors->receives)) << "another connection of this job";
  EXPECT_EQ(shake(credentials_of(1), credentials_of(1)).initiators, nullptr) << "unless it is asked for";
}

TEST(Handshake, OneThatEncryptsAndOneThatDoesNotGetTheReason) {
  for (const bool caller : {false, true}) {
    const Outcome out = shake(credentials_of(1, 1, caller), credentials_of(1, 1, !caller));
    EXPECT_TRUE(out.refused());
    for (const Status& status : {out.initiator, out.acceptor})
      EXPECT_NE(status.message().find("PYCOLLECTIVE_SECURITY"), std::string::npos) << status.to_string();
  }
}

TEST(Handshake, EncryptionCannotBeTalkedAway) {
  // A changed hello makes each side believe that the other one does not encrypt. Each refuses.
  const Outcome out = shake(credentials_of(1, 1, true), credentials_of(1, 1, true), kCaller, kCalled,
                            [](int step, Bytes& bytes) {
                              if (step > 1) return;
                              bytes[6] = std::byte{0};
                              std::fill(bytes.begin() + 64, bytes.begin() + kHelloBytes, std::byte{0});
                            });
  EXPECT_TRUE(out.refused());
}

class HandshakeBits : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Plain, HandshakeBits, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Encrypted, HandshakeBits, ::testing::Values(true));

TEST_P(HandshakeBits, EverySingleFlippedBitIsRefused) {
  const Credentials ours = credentials_of(1, 1, GetParam());
  const std::size_t lengths[] = {kHelloBytes, kHelloAnswerBytes, kProofBytes, kDecisionBytes};
  for (int step = 0; step < 4; ++step) {
    for (std::size_t bit = 0; bit < 8 * lengths[step]; ++bit) {
      const Outcome out = shake(ours, ours, kCaller, kCalled, [&](int now, Bytes& bytes) {
        if (now == step) bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      });
      EXPECT_FALSE(out.initiator_done) << "step " << step << " bit " << bit;
      // The acceptor is done when it has sent its decision. The peer is authenticated by then.
      EXPECT_EQ(out.acceptor_done, step == 3) << "step " << step << " bit " << bit;
    }
  }
}

TEST(Handshake, AnotherKeyIsRefusedOnBothSidesWithBothIds) {
  const Credentials one = credentials_of(1, 1), two = credentials_of(1, 2);
  const Outcome out = shake(one, two);
  EXPECT_TRUE(out.refused());
  for (const Status& status : {out.initiator, out.acceptor}) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    for (const Credentials& each : {one, two})
      EXPECT_NE(status.message().find(to_string(key_id(each.key))), std::string::npos) << status.message();
  }
  EXPECT_NE(out.initiator.message().find(one.key_source), std::string::npos) << out.initiator.message();
  EXPECT_NE(out.acceptor.message().find(two.key_source), std::string::npos) << out.acceptor.message();
}

TEST(Handshake, AnotherKeyUnderTheSameIdIsRefused) {
  // A peer that sends our id without our key is refused: the proofs decide.
  const KeyId ours = key_id(credentials_of(1, 1).key);
  const Outcome caller =
      shake(credentials_of(1, 2), credentials_of(1, 1), kCaller, kCalled, [&](int step, Bytes& b) {
        if (step < 2) std::copy(ours.begin(), ours.end(), b.begin() + 40);
      });
  EXPECT_TRUE(caller.refused());
}

TEST(Handshake, AMismatchIsReportedOnBothSides) {
  const auto refused = [](const Hello& from, const Hello& to, const char* part) {
    const Outcome out = shake(credentials_of(1), credentials_of(1), from, to);
    EXPECT_TRUE(out.refused()) << part;
    EXPECT_NE(out.initiator.message().find(part), std::string::npos) << out.initiator.message();
    EXPECT_NE(out.acceptor.message().find(part), std::string::npos) << out.acceptor.message();
  };
  Hello other = kCaller;
  other.epoch = 2;
  refused(other, kCalled, "epoch 2");
  other = kCaller;
  other.size = 5;
  refused(other, kCalled, "world of");
  other = kCaller;
  other.rank = 1;
  refused(other, kCalled, "so are we");
  other = kCaller;
  other.peer = 0;
  refused(other, kCalled, "rank 0");
  other = kCaller;
  other.role = Role::kStore;
  refused(other, kCalled, "store connection");
  const Outcome jobs = shake(credentials_of(1), credentials_of(2));
  EXPECT_TRUE(jobs.refused());
  EXPECT_NE(jobs.initiator.message().find("two jobs"), std::string::npos) << jobs.initiator.message();
}

TEST(Handshake, AnotherVersionReceivesOurs) {
  const Outcome out =
      shake(credentials_of(1), credentials_of(1), kCaller, kCalled, [](int step, Bytes& bytes) {
        if (step == 0) bytes[4] = std::byte{99};
        if (step == 1) bytes[4] = std::byte{98};
      });
  EXPECT_TRUE(out.refused());
  EXPECT_NE(out.acceptor.message().find("version 99"), std::string::npos) << out.acceptor.message();
  EXPECT_NE(out.initiator.message().find("version 98"), std::string::npos) << out.initiator.message();
}

TEST(Handshake, AReplayedHandshakeIsRefused) {
  std::vector<Bytes> recorded(4);
  shake(credentials_of(1), credentials_of(1), kCaller, kCalled,
        [&](int step, Bytes& b) { recorded[static_cast<std::size_t>(step)] = b; });
  const Outcome caller =
      shake(credentials_of(1), credentials_of(1), kCaller, kCalled, [&](int step, Bytes& bytes) {
        if (step % 2 == 0)
          bytes = recorded[static_cast<std::size_t>(step)];  // an attacker that replays the caller's part
      });
  EXPECT_FALSE(caller.acceptor_done);
  const Outcome called =
      shake(credentials_of(1), credentials_of(1), kCaller, kCalled, [&](int step, Bytes& bytes) {
        if (step % 2 == 1) bytes = recorded[static_cast<std::size_t>(step)];
      });
  EXPECT_FALSE(called.initiator_done);
}

TEST(Handshake, AMirrorIsNoMember) {
  // Sends the caller's own messages back to it, with its own proof as the answer.
  Handshake a = Handshake::initiator(kOurs, {.role = Role::kStore}).value();
  Handshake b = Handshake::initiator(kOurs, {.role = Role::kStore}).value();
  Bytes mirrored = take(a);
  Bytes other = take(b);
  mirrored.resize(kHelloAnswerBytes);
  EXPECT_FALSE(give(a, mirrored).is_ok());
  other.resize(kHelloAnswerBytes);
  EXPECT_FALSE(give(b, other).is_ok());
}

TEST(Handshake, AnUnauthenticatedPeerCostsNoPublicKey) {
  const Credentials encrypts = credentials_of(1, 1, true);
  const auto key_at = [](const Bytes& bytes, std::ptrdiff_t at) {
    return std::any_of(bytes.begin() + at, bytes.begin() + at + 32,
                       [](std::byte b) { return b != std::byte{0}; });
  };
  std::array<bool, 4> carries = {};
  shake(encrypts, encrypts, kCaller, kCalled, [&](int step, Bytes& bytes) {
    if (step == 0 || step == 1) carries[static_cast<std::size_t>(step)] = key_at(bytes, 64);
    if (step == 3) carries[3] = key_at(bytes, 8);
  });
  EXPECT_EQ(carries, (std::array<bool, 4>{true, false, false, true}));
}

TEST(Handshake, ARefusalIsProvenAndSaysWhy) {
  const Outcome taken =
      shake(credentials_of(1), credentials_of(1), kCaller, kCalled, {}, Decision::kRankTaken);
  EXPECT_EQ(taken.initiator.code(), Code::kMismatch);
  EXPECT_NE(taken.initiator.message().find("another process is connected to rank 1 as rank 2"),
            std::string::npos)
      << taken.initiator.message();
  EXPECT_FALSE(taken.acceptor_done);
  EXPECT_EQ(shake(credentials_of(1), credentials_of(1), kCaller, kCalled, {}, Decision::kNotNeeded)
                .initiator.code(),
            Code::kMismatch);
}

TEST(Handshake, NeverAsksForMoreBytesThanAHandshakeHas) {
  Handshake a = Handshake::initiator(kOurs, kCaller).value();
  EXPECT_EQ(a.input().size(), kHelloAnswerBytes);
  Handshake b = Handshake::acceptor(kOurs, kCalled).value();
  EXPECT_EQ(b.input().size(), kHelloBytes);
  ASSERT_TRUE(give(b, take(a)).is_ok());
  EXPECT_EQ(b.input().size(), kProofBytes);
}

TEST(Credentials, IdsShowNothingOfTheKeyAndDistinguishKeys) {
  EXPECT_NE(key_id(credentials_of(1, 1).key), key_id(credentials_of(1, 2).key));
  EXPECT_EQ(to_string(key_id(credentials_of(1, 1).key)).size(), 8u);
  // BLAKE2b-128 of 32 zero bytes with the personalisation "pycollective-kid", as computed by
  // Python's hashlib.
  EXPECT_EQ(to_string(key_id(JobKey())), "5834fddf");
}

}  // namespace
}  // namespace pc
