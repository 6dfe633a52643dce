// How a link ends: every operation completes exactly once, with the cause.
#include "link_pair.h"
#include "wire/link.h"

namespace pc {
namespace {

TEST(LinkEnd, FailCompletesEverythingPostedNowAndLaterWithTheFirstCause) {
  LinkPair pair(kSmall);
  std::vector<std::byte> small(8), large(4096), got(4096), got2(4096);
  pair.b.recv(p2p(9), got);
  pair.settle();
  pair.a.send(p2p(9), large, 0);  // on the wire
  LinkPair::take(pair.a);
  pair.a.send(p2p(1), small, 1);  // has credit
  pair.a.send(p2p(2), large, 2);  // must send a REQUEST
  pair.a.recv(p2p(3), got2, 3);
  pair.a.link.fail(Status(Code::kPeerFailure, "the cable is cut"));
  pair.a.link.fail(Status(Code::kInternal, "too late"));
  for (const uint64_t token : {0, 1, 2}) EXPECT_EQ(pair.a.sends.code(token), Code::kPeerFailure) << token;
  EXPECT_EQ(pair.a.recvs.code(3), Code::kPeerFailure);
  pair.a.send(p2p(4), small, 4);
  pair.a.recv(p2p(5), got, 5);
  EXPECT_EQ(pair.a.sends.done.at(4).status.message(), "the cable is cut");
  EXPECT_EQ(pair.a.recvs.done.at(5).status.message(), "the cable is cut");
  EXPECT_FALSE(pair.a.link.has_output());
  EXPECT_FALSE(pair.a.link.next_frame().has_value());
  pair.a.link.written();  // for the frame that was unwritten: no effect
  EXPECT_FALSE(pair.a.link.header_arrived(FrameHeader{}).is_ok());
  EXPECT_EQ(pair.a.sends.done.size(), 4u);
}

TEST(LinkEnd, FailInTheMiddleOfAPayloadIsSafe) {
  for (const bool expected : {true, false}) {
    LinkPair pair(kSmall);
    std::vector<std::byte> data(300), got(300);
    if (expected) pair.b.recv(p2p(1), got, 1);
    pair.a.send(p2p(1), data);
    LinkPair::take(pair.a);
    ASSERT_TRUE(pair.b.link.header_arrived(pair.a.wire.front().header).is_ok());
    pair.b.link.fail(Status(Code::kPeerFailure, "gone"));
    EXPECT_TRUE(pair.b.link.payload_arrived().is_ok());
    EXPECT_EQ(pair.b.recvs.done.size(), expected ? 1u : 0u);
    EXPECT_EQ(pair.b.link.counts().unexpected, 0u);
  }
}

TEST(LinkEnd, GoodbyeComesAfterEverythingPostedBefore) {
  LinkPair pair(kSmall);
  std::vector<std::byte> small(8), large(4096), got(4096);
  pair.a.send(p2p(1), large, 1);
  pair.a.send(p2p(2), small, 2);
  pair.a.link.send_goodbye();
  pair.a.send(p2p(3), small, 3);
  EXPECT_EQ(pair.a.sends.code(3), Code::kAborted);
  pair.settle();
  EXPECT_FALSE(pair.b.link.peer_sent_goodbye()) << "a message is still waiting for its receive";
  pair.b.recv(p2p(1), got, 1);
  pair.settle();
  EXPECT_TRUE(pair.b.link.peer_sent_goodbye());
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk);
  EXPECT_EQ(pair.a.sends.code(1), Code::kOk);
  EXPECT_FALSE(pair.a.link.has_output());
}

TEST(LinkEnd, MessagesFromBeforeTheGoodbyeCanStillBeReceived) {
  LinkPair pair(kSmall);
  const std::vector<std::byte> data = bytes(100);
  std::vector<std::byte> got(100);
  pair.a.send(p2p(1), data);
  pair.a.link.send_goodbye();
  pair.settle();
  pair.b.link.fail(
      Status(Code::kPeerExited, "end of stream"));  // as a frame I/O does when the connection then closes
  pair.b.recv(p2p(1), got, 1);
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk);
  EXPECT_EQ(got, data);
  pair.b.recv(p2p(1, 1), got, 2);
  EXPECT_EQ(pair.b.recvs.code(2), Code::kPeerExited);
}

TEST(LinkEnd, GoodbyeEndsWhatNeedsThePeerAndNamesIt) {
  LinkPair pair(kSmall);
  std::vector<std::byte> small(8), large(4096), got(8);
  pair.b.recv(p2p(1), got, 1);
  pair.b.send(p2p(2), large, 2);
  pair.a.link.send_goodbye();
  pair.settle();
  EXPECT_EQ(pair.b.recvs.code(1), Code::kPeerExited);
  EXPECT_EQ(pair.b.recvs.done.at(1).status.peer(), 0);
  EXPECT_EQ(pair.b.sends.code(2), Code::kPeerExited);
  pair.b.send(p2p(3), small, 3);
  EXPECT_EQ(pair.b.sends.code(3), Code::kPeerExited);
}

TEST(LinkEnd, BothSidesMaySayGoodbyeAtOnce) {
  LinkPair pair(kSmall);
  std::vector<std::byte> small(8);
  pair.a.send(p2p(1), small, 1);
  pair.b.send(p2p(1), small, 1);
  pair.a.link.send_goodbye();
  pair.b.link.send_goodbye();
  pair.settle();
  EXPECT_TRUE(pair.a.link.peer_sent_goodbye() && pair.b.link.peer_sent_goodbye());
  EXPECT_FALSE(pair.a.link.has_output() || pair.b.link.has_output());
}

}  // namespace
}  // namespace pc
