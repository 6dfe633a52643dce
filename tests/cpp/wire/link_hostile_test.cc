// A peer that violates the protocol causes an error that names it, never a crash, a wrong byte, or
// memory use that it controls.
#include "link_pair.h"
#include "wire/link.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

namespace pc {
namespace {

Frame data(const MessageId& id, uint64_t message_nbytes, uint64_t offset, uint32_t segment_nbytes,
           uint8_t flags = 0) {
  return {{FrameType::kData, flags, 1, id, message_nbytes, offset, segment_nbytes},
          std::vector<std::byte>(segment_nbytes)};
}
Frame eager(const MessageId& id, uint32_t nbytes) { return data(id, nbytes, 0, nbytes, kFlagEager); }
Frame control(FrameType type, const MessageId& id, uint64_t nbytes = 0, uint64_t offset = 0) {
  return {{type, 0, 1, id, nbytes, offset, 0}, {}};
}
Frame cancel(const MessageId& id, int flags, uint64_t reason = 0) {
  return {{FrameType::kCancel, static_cast<uint8_t>(flags), 1, id, 0, reason, 0}, {}};
}
const MessageId kNoMessage = {{0, StreamClass::kControl, 0}, 0, 0, 0};

class LinkHostile : public ::testing::Test {
 protected:
  Status arrive(const Frame& frame) { return LinkPair::arrive(us.link, frame); }
  void expect_refused(const Frame& frame, const std::string& reason) {
    const Status status = arrive(frame);
    ASSERT_EQ(status.code(), Code::kPeerFailure);
    EXPECT_EQ(status.peer(), 1);
    EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
    us.link.fail(status);
    EXPECT_EQ(us.link.counts().posted_sends + us.link.counts().posted_recvs, 0u);
  }
  // Posts a receive of 4096 bytes, for which the CLEAR has been sent.
  void clear_one() {
    memory.resize(4096);
    us.recv(p2p(1), memory, 1);
    ASSERT_TRUE(LinkPair::take(us));
  }
  Side us{0, 1, kSmall};
  std::vector<std::byte> memory;
};

TEST_F(LinkHostile, DataThatWasNeverCleared) { expect_refused(data(p2p(1), 4096, 0, 1024), "not cleared"); }
TEST_F(LinkHostile, DataForASmallReceiveThatWasNotCleared) {
  memory.resize(100);
  us.recv(p2p(1), memory, 1);
  expect_refused(data(p2p(1), 100, 0, 100), "not cleared");
  EXPECT_EQ(us.recvs.code(1), Code::kPeerFailure);
}
TEST_F(LinkHostile, DataOfAnotherSizeThanCleared) {
  clear_one(), expect_refused(data(p2p(1), 8192, 0, 1024), "not the message");
}
TEST_F(LinkHostile, DataOfAnotherDigestThanCleared) {
  clear_one(), expect_refused(data(p2p(1, 0, 99), 4096, 0, 1024), "not the message");
}
TEST_F(LinkHostile, AGapBetweenSegments) {
  clear_one(), expect_refused(data(p2p(1), 4096, 1024, 1024), "where 0 was expected");
}
TEST_F(LinkHostile, ASegmentTwice) {
  clear_one();
  ASSERT_TRUE(arrive(data(p2p(1), 4096, 0, 1024)).is_ok());
  expect_refused(data(p2p(1), 4096, 0, 1024), "where 1024 was expected");
}
TEST_F(LinkHostile, OverlappingSegments) {
  clear_one();
  ASSERT_TRUE(arrive(data(p2p(1), 4096, 0, 1024)).is_ok());
  expect_refused(data(p2p(1), 4096, 512, 1024), "where 1024 was expected");
}
TEST_F(LinkHostile, ASegmentBehindTheEnd) {  // decode() refuses it too; the link does not rely on that
  clear_one();
  for (uint64_t at = 0; at < 3072; at += 1024) ASSERT_TRUE(arrive(data(p2p(1), 4096, at, 1024)).is_ok());
  ASSERT_TRUE(arrive(data(p2p(1), 4096, 3072, 960)).is_ok());
  expect_refused(data(p2p(1), 4096, 4032, 1024), "was expected");
}
TEST_F(LinkHostile, ASegmentLongerThanOurs) {
  clear_one(), expect_refused(data(p2p(1), 4096, 0, 2048), "at most 1024");
}
TEST_F(LinkHostile, AMessageAfterItsEnd) {
  clear_one();
  for (uint64_t at = 0; at < 4096; at += 1024) ASSERT_TRUE(arrive(data(p2p(1), 4096, at, 1024)).is_ok());
  EXPECT_EQ(us.recvs.code(1), Code::kOk);
  expect_refused(data(p2p(1), 4096, 0, 1024), "not cleared");
}
TEST_F(LinkHostile, AnEagerMessageTooLarge) { expect_refused(eager(p2p(1), 513), "at most 512"); }
TEST_F(LinkHostile, AnEagerMessageInTheMiddleOfTheSame) {
  clear_one();
  ASSERT_TRUE(arrive(data(p2p(1), 4096, 0, 1024)).is_ok());
  expect_refused(eager(p2p(1), 64), "announced or sent before");
}
TEST_F(LinkHostile, MoreEagerMessagesThanCredit) {
  for (uint64_t i = 0; i < 14; ++i) ASSERT_TRUE(arrive(eager(p2p(1, i), 512)).is_ok()) << i;
  expect_refused(eager(p2p(1, 14), 512), "exceeds the credit");
}
TEST_F(LinkHostile, EmptyMessagesCostCreditToo) {
  for (uint64_t i = 0; i < 128; ++i) ASSERT_TRUE(arrive(eager(p2p(1, i), 0)).is_ok()) << i;
  expect_refused(eager(p2p(1, 128), 0), "exceeds the credit");
}
TEST_F(LinkHostile, MoreRequestsThanAllowed) {
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_TRUE(arrive(control(FrameType::kRequest, p2p(1, i), ~uint64_t{0})).is_ok());
  expect_refused(control(FrameType::kRequest, p2p(1, 8), 1), "unanswered requests");
}
TEST_F(LinkHostile, ARequestTwice) {
  ASSERT_TRUE(arrive(control(FrameType::kRequest, p2p(1), 4096)).is_ok());
  expect_refused(control(FrameType::kRequest, p2p(1), 4096), "announced before");
}
TEST_F(LinkHostile, ARequestTwiceForAPostedReceive) {
  clear_one();
  ASSERT_TRUE(arrive(control(FrameType::kRequest, p2p(1), 4096)).is_ok());
  expect_refused(control(FrameType::kRequest, p2p(1), 4096), "announced before");
}
TEST_F(LinkHostile, ARequestInTheMiddleOfItsMessage) {
  clear_one();
  ASSERT_TRUE(arrive(data(p2p(1), 4096, 0, 1024)).is_ok());
  expect_refused(control(FrameType::kRequest, p2p(1), 4096), "announced before");
}
TEST_F(LinkHostile, MoreClearsThanAllowed) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(arrive(control(FrameType::kClear, p2p(1, i), 4096)).is_ok());
  expect_refused(control(FrameType::kClear, p2p(1, 8), 4096), "early clears");
}
TEST_F(LinkHostile, AClearTwice) {
  ASSERT_TRUE(arrive(control(FrameType::kClear, p2p(1), 4096)).is_ok());
  expect_refused(control(FrameType::kClear, p2p(1), 4096), "cleared before");
}
TEST_F(LinkHostile, AClearTwiceForAMessageThatIsBeingSent) {
  memory.resize(4096);
  us.send(p2p(1), memory, 1);
  ASSERT_TRUE(arrive(control(FrameType::kClear, p2p(1), 4096)).is_ok());
  expect_refused(control(FrameType::kClear, p2p(1), 4096), "cleared before");
  EXPECT_EQ(us.sends.code(1), Code::kPeerFailure);
}
TEST_F(LinkHostile, CreditThatWasNeverSpent) {
  expect_refused(control(FrameType::kCredit, kNoMessage, 0, 64), "more than were spent");
}
TEST_F(LinkHostile, CreditThatOverflows) {
  memory.resize(100);
  us.send(p2p(1), memory);
  expect_refused(control(FrameType::kCredit, kNoMessage, 0, ~uint64_t{0} - 100), "more than were spent");
}
TEST_F(LinkHostile, FramesAfterGoodbye) {
  ASSERT_TRUE(arrive(control(FrameType::kGoodbye, kNoMessage)).is_ok());
  expect_refused(eager(p2p(1), 8), "after GOODBYE");
}
TEST_F(LinkHostile, AnEpochFromTheFuture) {
  Frame frame = eager(p2p(1), 8);
  frame.header.epoch = 2;
  expect_refused(frame, "epoch 2 on a link of epoch 1");
}
TEST_F(LinkHostile, ControlPlaneFramesOnADataConnection) {
  for (const FrameType type : {FrameType::kNotice, FrameType::kDead, FrameType::kPing}) {
    EXPECT_EQ(arrive(control(type, p2p(1))).code(), Code::kPeerFailure);
  }
  EXPECT_EQ(arrive(control(FrameType::kCancel, collective(1))).code(), Code::kPeerFailure);
  EXPECT_EQ(arrive(control(FrameType::kCancel, kNoMessage)).code(), Code::kPeerFailure);
}

TEST_F(LinkHostile, ARequestCancelledTwice) {
  ASSERT_TRUE(arrive(control(FrameType::kRequest, p2p(1), 4096)).is_ok());
  ASSERT_TRUE(arrive(cancel(p2p(1), 0)).is_ok());
  expect_refused(cancel(p2p(1), 0), "cancelled before");
}
TEST_F(LinkHostile, AClearCancelledTwice) {
  ASSERT_TRUE(arrive(control(FrameType::kClear, p2p(1), 4096)).is_ok());
  ASSERT_TRUE(arrive(cancel(p2p(1), kFlagByReceiver)).is_ok());
  expect_refused(cancel(p2p(1), kFlagByReceiver), "cancelled before");
}
TEST_F(LinkHostile, ACancelWithAnUnknownReasonIsStillOne) {
  clear_one();
  ASSERT_TRUE(arrive(cancel(p2p(1), 0, ~uint64_t{0})).is_ok());
  EXPECT_EQ(us.recvs.code(1), Code::kAborted);
}
TEST_F(LinkHostile, AnswersToNothingHaveNoEffect) {
  clear_one();
  us.send(p2p(2), memory, 2);
  for (const uint8_t direction : {uint8_t{0}, kFlagByReceiver}) {
    for (uint32_t tag = 1; tag < 4; ++tag) {
      ASSERT_TRUE(arrive(cancel(p2p(tag), direction | kFlagAnswer)).is_ok());
    }
  }
  EXPECT_TRUE(us.recvs.done.empty() && us.sends.done.empty());
  EXPECT_FALSE(us.link.cancel(&us.recvs, Status(Code::kTimeout, "")));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(arrive(cancel(p2p(1), kFlagByReceiver | kFlagAnswer)).is_ok());
  EXPECT_EQ(us.link.counts().withdrawn + us.link.counts().early_clears, 0u);
  expect_refused(data(p2p(1), 4096, 0, 1024), "not cleared");
}
// Answers that it makes us write must not accumulate when it does not read.
TEST_F(LinkHostile, CancelsWithAnswersThatItDoesNotRead) {
  for (uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(arrive(cancel(p2p(1, i), i % 2 * kFlagByReceiver)).is_ok());
  expect_refused(cancel(p2p(1, 32), 0), "answers");
}
TEST_F(LinkHostile, RequestsAndClearsOfADiscardedCollectiveWithAnswersThatItDoesNotRead) {
  us.link.discard(0, 5);
  for (uint32_t i = 0; i < 32; ++i) {
    const FrameType type = i % 2 == 0 ? FrameType::kRequest : FrameType::kClear;
    ASSERT_TRUE(arrive(control(type, collective(5, i), 4096)).is_ok());
  }
  EXPECT_EQ(us.link.counts().requests + us.link.counts().clears, 0u);
  expect_refused(control(FrameType::kRequest, collective(5, 32), 4096), "answers");
}

TEST_F(LinkHostile, FramesOfAnOldEpochHaveNoEffect) {
  memory.resize(4096);
  std::vector<std::byte> small(100);
  us.recv(p2p(1), memory, 1);
  us.recv(p2p(2), small, 2);
  us.send(p2p(3), memory, 3);
  Frame frames[] = {eager(p2p(2), 100),
                    data(p2p(1), 4096, 0, 1024),
                    control(FrameType::kRequest, p2p(9), 1),
                    control(FrameType::kClear, p2p(3), 4096),
                    control(FrameType::kCredit, kNoMessage, 0, 999),
                    control(FrameType::kGoodbye, kNoMessage)};
  for (int round = 0; round < 1000; ++round) {
    for (Frame& frame : frames) {
      frame.header.epoch = 0;
      ASSERT_TRUE(arrive(frame).is_ok());
    }
  }
  EXPECT_TRUE(us.recvs.done.empty() && us.sends.done.empty());
  EXPECT_FALSE(us.link.peer_sent_goodbye());
  EXPECT_EQ(us.link.counts().unexpected + us.link.counts().requests, 0u);
}

TEST_F(LinkHostile, WhatIsHeldForAPeerIsBoundedByOurLimits) {
  std::mt19937 random(1);
  for (uint64_t i = 0; i < 20000; ++i) {
    const MessageId id = p2p(static_cast<uint32_t>(random()), i);
    const uint64_t huge = (uint64_t{random()} << 32) + 1000;
    Frame frame = eager(id, static_cast<uint32_t>(random() % 512));
    if (random() % 3 == 0) frame = control(FrameType::kRequest, id, huge);
    if (random() % 3 == 0) frame = control(FrameType::kClear, id, huge);
    (void)arrive(frame).is_ok();  // a frame I/O would have closed; the bounds hold even without that
    const Link::Counts held = us.link.counts();
    ASSERT_LE(held.unexpected * kHeaderBytes + held.unexpected_nbytes, kSmall.credit_bytes);
    ASSERT_LE(held.requests, kSmall.max_requests);
  }
}

TEST_F(LinkHostile, RandomPeersNeverCrashLeakOrCompleteTwice) {
  std::mt19937 random(20);
  std::vector<uint8_t> input;
  for (int i = 0; i < 10000; ++i) {
    input.resize(20 + random() % 400);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

}  // namespace
}  // namespace pc
