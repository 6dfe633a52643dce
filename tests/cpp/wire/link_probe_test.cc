// Probing for a message before receiving it: its first frame describes it.
#include "link_pair.h"
#include "wire/link.h"

namespace pc {
namespace {

constexpr std::size_t kEager = 100, kAnnounced = 2000;

struct Found {
  Recorder sink;
  std::string description = "untouched";
  void look(Side& side, const MessageId& id) { side.link.post_probe({id, &sink, 0, &description}); }
  bool is(const MessageId& id, std::size_t nbytes) const {
    const std::span<const std::byte> sent = description_of(id);
    return sink.code(0) == Code::kOk && sink.done.at(0).nbytes == nbytes &&
           sink.done.at(0).found.digest == id.digest && description == std::string(sent.size(), 'd');
  }
};

TEST(LinkProbe, FindsWhatHasArrivedAndWhatArrivesLater) {
  for (const std::size_t nbytes : {std::size_t{0}, kEager, kAnnounced}) {
    for (const bool first : {true, false}) {
      SCOPED_TRACE(::testing::Message() << nbytes << " bytes, probe first: " << first);
      LinkPair pair(kSmall);
      const std::vector<std::byte> sent = bytes(nbytes);
      std::vector<std::byte> got(nbytes);
      Found found;
      if (first) found.look(pair.b, p2p(3, 2, 77));
      pair.a.send(p2p(3, 2, 77), sent, 1);
      pair.settle();
      if (!first) found.look(pair.b, p2p(3, 2, 0));  // the digest does not matter
      EXPECT_TRUE(found.is(p2p(3, 2, 77), nbytes));
      Found again;
      again.look(pair.b, p2p(3, 2));
      EXPECT_TRUE(again.is(p2p(3, 2, 77), nbytes)) << "a probe takes nothing";
      pair.b.recv(p2p(3, 2, 77), got, 2);
      pair.settle();
      EXPECT_EQ(pair.b.recvs.code(2), Code::kOk);
      EXPECT_EQ(pair.a.sends.code(1), Code::kOk);
      EXPECT_EQ(got, sent);
      Found taken;
      taken.look(pair.b, p2p(3, 2));
      EXPECT_FALSE(taken.sink.has(0));
      static_cast<void>(pair.b.link.cancel(&taken.sink, Status(Code::kTimeout, "")));
      expect_at_rest(pair, kSmall);
    }
  }
}

TEST(LinkProbe, FindsNoOtherMessage) {
  LinkPair pair(kSmall);
  Found found;
  found.look(pair.b, p2p(3, 2));
  const std::vector<std::byte> small = bytes(kEager), large = bytes(kAnnounced);
  pair.a.send(p2p(3, 1), small, 1);
  pair.a.send(p2p(3, 3), large, 2);
  pair.a.send(p2p(4, 2), small, 3);
  pair.settle();
  EXPECT_FALSE(found.sink.has(0));
}

TEST(LinkProbe, AWithdrawnProbeCompletesNothingAndSendsNothing) {
  LinkPair pair(kSmall);
  Found found;
  found.look(pair.b, p2p(3));
  EXPECT_TRUE(pair.b.link.cancel(&found.sink, Status(Code::kTimeout, "")));
  const std::vector<std::byte> sent = bytes(kEager);
  pair.a.send(p2p(3), sent, 1);
  pair.settle();
  EXPECT_TRUE(found.sink.done.empty());
  EXPECT_TRUE(pair.b.wire.empty());
}

// A receive that has matched a REQUEST, and is withdrawn before its CLEAR is written, changes
// nothing.
TEST(LinkProbe, AReceiveThatIsTakenBackLeavesTheDescription) {
  for (const bool receive_first : {true, false}) {
    LinkPair pair(kSmall);
    const std::vector<std::byte> sent = bytes(kAnnounced);
    std::vector<std::byte> got(kAnnounced);
    Recorder doomed;
    const RecvOp receive{p2p(3, 5), got, kAnnounced, nullptr, &doomed, 0};
    if (receive_first) pair.b.link.post_recv(receive);
    pair.a.send(p2p(3, 5), sent, 1);
    while (LinkPair::take(pair.a) | LinkPair::deliver(pair.a, pair.b)) {
    }
    if (!receive_first) pair.b.link.post_recv(receive);
    EXPECT_TRUE(pair.b.link.cancel(&doomed, Status(Code::kTimeout, "")));
    Found found;
    found.look(pair.b, p2p(3, 5));
    EXPECT_TRUE(found.is(p2p(3, 5), kAnnounced)) << receive_first;
  }
}

TEST(LinkProbe, EndsWithTheLink) {
  LinkPair pair(kSmall);
  Found waiting, late;
  waiting.look(pair.b, p2p(3));
  const std::vector<std::byte> sent = bytes(kEager);
  pair.a.send(p2p(4), sent, 1);
  pair.a.link.send_goodbye();
  pair.settle();
  EXPECT_EQ(waiting.sink.code(0), Code::kPeerExited);
  late.look(pair.b, p2p(3));
  EXPECT_EQ(late.sink.code(0), Code::kPeerExited);
  Found kept;
  kept.look(pair.b, p2p(4));
  EXPECT_TRUE(kept.is(p2p(4), kEager)) << "it came whole before the goodbye";

  LinkPair broken(kSmall);
  Found lost;
  lost.look(broken.b, p2p(3));
  broken.b.link.fail(Status(Code::kPeerFailure, "gone"));
  EXPECT_EQ(lost.sink.code(0), Code::kPeerFailure);
}

}  // namespace
}  // namespace pc
