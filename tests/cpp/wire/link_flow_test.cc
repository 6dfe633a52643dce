// Flow control: which side may send when, what overtakes what, and that no order of posting blocks
// forever.
#include "link_pair.h"
#include "wire/link.h"

namespace pc {
namespace {

TEST(LinkFlow, ASmallMessageWaitsForOneSegmentOfALargeOne) {
  LinkPair pair;
  std::vector<std::byte> large(64 << 20), got(64 << 20), small(8);
  pair.b.recv(p2p(1), got, 1);
  pair.settle();
  pair.a.send(p2p(1), large, 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(LinkPair::take(pair.a));
  pair.a.send(p2p(2), small, 2);  // while the third segment is unwritten
  pair.a.wire.clear();
  LinkPair::take(pair.a);
  LinkPair::take(pair.a);
  ASSERT_EQ(pair.a.wire.size(), 2u);
  EXPECT_TRUE(pair.a.wire[0].header.id.stream.tag == 2 || pair.a.wire[1].header.id.stream.tag == 2);
}

TEST(LinkFlow, AFrameFitsIntoTheRoomThatThereIsOrWaitsForMore) {
  LinkPair pair;
  std::vector<std::byte> large(200'000), got(200'000), small(1000), in(1000);
  pair.b.recv(p2p(1), got, 1);
  pair.settle();
  pair.a.send(p2p(1), large, 1);
  pair.a.send(p2p(2), small, 2);
  EXPECT_FALSE(pair.a.link.next_frame(OutFrame::kLeastCut - 1).has_value()) << "no crumbs";
  const std::optional<OutFrame> cut = pair.a.link.next_frame(10'000);
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->header.segment_nbytes, 9984u) << "a multiple of 64";
  EXPECT_FALSE(pair.a.link.next_frame(1013).has_value())
      << "an eager message and its description are not cut";
  EXPECT_TRUE(pair.a.link.has_output());
  const std::optional<OutFrame> whole = pair.a.link.next_frame(1014);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->header.id.stream.tag, 2u);
  const std::optional<OutFrame> rest = pair.a.link.next_frame(200'000);
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->header.offset, 9984u);
  EXPECT_EQ(rest->header.segment_nbytes, 200'000u - 9984u);
  for (int i = 0; i < 3; ++i) pair.a.link.written();
  EXPECT_FALSE(pair.a.link.has_output());
}

TEST(LinkFlow, TheShortWayIsOnlyForALinkWithNothingElseToDo) {
  LinkPair pair(kSmall);
  const MessageId id = p2p(1);
  EXPECT_TRUE(pair.a.link.send_at_once(id, 8, 3));
  EXPECT_EQ(pair.a.link.counts().credit, kSmall.credit_bytes - kHeaderBytes - 11);
  EXPECT_FALSE(pair.a.link.send_at_once(id, kSmall.eager_bytes + 1, 0)) << "not eager";
  FrameHeader header;
  header.flags = kFlagEager;
  header.epoch = 1;
  header.id = id;
  header.message_nbytes = header.segment_nbytes = 8;
  header.description_nbytes = 3;
  EXPECT_TRUE(pair.b.link.can_receive_at_once(header, id, 8));
  EXPECT_FALSE(pair.b.link.can_receive_at_once(header, id, 9));
  EXPECT_FALSE(pair.b.link.can_receive_at_once(header, p2p(2), 8));
  pair.b.link.received_at_once(header);
  EXPECT_EQ(pair.b.link.counts().returnable, kHeaderBytes + 11);
  std::vector<std::byte> data(8);
  pair.b.recv(p2p(3), data, 1);
  EXPECT_FALSE(pair.b.link.can_receive_at_once(header, id, 8)) << "a receive is posted";
  pair.a.send(p2p(3), data, 1);
  EXPECT_FALSE(pair.a.link.send_at_once(id, 8, 3)) << "something waits to be written";
}

TEST(LinkFlow, LargeMessagesAlternateSegmentBySegment) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(10 * 1024), got(30 * 1024);
  for (uint32_t tag = 0; tag < 3; ++tag)
    pair.b.recv(p2p(tag), std::span(got).subspan(tag * data.size(), data.size()));
  while (LinkPair::take(pair.b) && LinkPair::deliver(pair.b, pair.a)) {
  }
  for (uint32_t tag = 0; tag < 3; ++tag) pair.a.send(p2p(tag), data, tag);
  for (uint32_t i = 0; i < 30; ++i) {
    ASSERT_TRUE(LinkPair::take(pair.a));
    EXPECT_EQ(pair.a.wire.back().header.id.stream.tag, i % 3);
    EXPECT_EQ(pair.a.wire.back().header.offset, i / 3 * 1024);
  }
  EXPECT_FALSE(LinkPair::take(pair.a));
}

TEST(LinkFlow, ASendIsDoneWhenItsLastFrameIsWrittenHoweverManyAreOut) {
  LinkPair pair(kSmall);
  pair.a.most_out = 100;
  std::vector<std::byte> first(2048), second(3072), small(8), got(2048 + 3072);
  pair.b.recv(p2p(1), std::span(got).first(2048));
  pair.b.recv(p2p(2), std::span(got).last(3072));
  while (LinkPair::take(pair.b) && LinkPair::deliver(pair.b, pair.a)) {
  }
  pair.a.send(p2p(1), first, 1);
  pair.a.send(p2p(2), second, 2);
  pair.a.send(p2p(3), small, 3);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(LinkPair::take(pair.a));  // segments of 1, 2, 3, 1, 2, 2
  EXPECT_TRUE(pair.a.sends.done.empty());
  EXPECT_EQ(pair.a.link.counts().posted_sends, 3u);
  const std::vector<std::size_t> done_after = {0, 0, 1, 2, 2, 3};
  for (const std::size_t done : done_after) {
    pair.a.link.written();
    EXPECT_EQ(pair.a.sends.done.size(), done);
  }
  EXPECT_FALSE(pair.a.link.has_output());
}

TEST(LinkFlow, ControlFramesOvertakeData) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(10 * 1024), got(10 * 1024), back(2048);
  pair.b.recv(p2p(1), got);
  LinkPair::take(pair.b);
  LinkPair::deliver(pair.b, pair.a);
  pair.a.send(p2p(1), data);
  LinkPair::take(pair.a);
  pair.a.recv(p2p(2), back);
  LinkPair::take(pair.a);
  EXPECT_EQ(pair.a.wire.back().header.type, FrameType::kClear);
}

TEST(LinkFlow, CreditComesBackAsLongAsMessagesAreReceived) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(100), got(100);
  for (uint64_t i = 0; i < 1000; ++i) {
    if (i % 2 == 0) pair.b.recv(p2p(1, i), got, i);
    pair.a.send(p2p(1, i), data, i);
    LinkPair::take(pair.a);
    ASSERT_NE(pair.a.wire.back().header.type, FrameType::kRequest) << i;
    pair.settle();
    if (i % 2 != 0) pair.b.recv(p2p(1, i), got, i);
    ASSERT_EQ(pair.b.recvs.code(i), Code::kOk);
  }
}

TEST(LinkFlow, EarlyClearsNeverRunOut) {
  LinkPair pair(kSmall);
  std::vector<std::byte> large(2000), small(10), got(2000);
  for (uint64_t i = 0; i < 100; ++i) {
    pair.b.recv(p2p(1, i), got, i);
    LinkPair::take(pair.b);
    ASSERT_EQ(pair.b.wire.size(), 1u) << i;
    ASSERT_EQ(pair.b.wire.back().header.type, FrameType::kClear);
    if (i % 3 == 0)
      // otherwise the CLEAR crosses the REQUEST, or eager DATA if the two sides disagree
      LinkPair::deliver(pair.b, pair.a);
    pair.a.send(p2p(1, i), i % 3 == 2 ? small : large, i);
    pair.settle();
    ASSERT_EQ(pair.b.recvs.code(i), i % 3 == 2 ? Code::kMismatch : Code::kOk);
  }
}

TEST(LinkFlow, UnexpectedMessagesDoNotBlockTheAwaitedOne) {
  for (const std::size_t nbytes : {0u, 100u, 512u, 2000u}) {
    LinkPair pair(kSmall);
    const std::vector<std::byte> data = bytes(nbytes), wanted = bytes(300, 2);
    std::vector<std::byte> got(300), rest(nbytes);
    // far more than credit and REQUESTs allow
    for (uint64_t i = 0; i < 400; ++i) pair.a.send(p2p(1, i), data, i);
    pair.a.send(p2p(2), wanted, 1000);
    pair.settle();
    const Link::Counts held = pair.b.link.counts();
    EXPECT_LE(held.unexpected * kHeaderBytes + held.unexpected_nbytes, kSmall.credit_bytes);
    EXPECT_LE(held.requests, kSmall.max_requests);
    pair.b.recv(p2p(2), got, 1000);
    pair.settle();
    ASSERT_EQ(pair.b.recvs.code(1000), Code::kOk) << nbytes;
    EXPECT_EQ(got, wanted);
    for (uint64_t i = 0; i < 400; ++i) {
      std::fill(rest.begin(), rest.end(), std::byte{0});
      pair.b.recv(p2p(1, i), rest, i);
      pair.settle();
      ASSERT_EQ(pair.b.recvs.code(i), Code::kOk) << i;
      EXPECT_EQ(rest, data);
    }
    EXPECT_EQ(pair.a.sends.done.size(), 401u);
  }
}

TEST(LinkFlow,
     // like the test above, but its receive is posted first
     ReceivesPostedBeforeTheAwaitedSmallOneDoNotBlockIt) {
  LinkPair pair(kSmall);
  std::vector<std::byte> large(2000), small(10), got(10);
  pair.b.recv(p2p(2), got, 1);
  for (uint64_t i = 0; i < 400; ++i) pair.a.send(p2p(1, i), i < 200 ? small : large, i);
  pair.a.send(p2p(2), small, 1000);
  pair.settle();
  EXPECT_EQ(pair.b.recvs.code(1), Code::kOk);
}

TEST(LinkFlow, MoreLargeReceivesThanEarlyClearsAreServedInAnyOrder) {
  LinkPair pair(kSmall);
  const std::vector<std::byte> data = bytes(2000);
  std::vector<std::vector<std::byte>> got(40, std::vector<std::byte>(2000));
  for (uint64_t i = 0; i < 40; ++i) pair.b.recv(p2p(1, i), got[i], i);
  pair.settle();
  for (uint64_t i = 40; i-- > 0;) pair.a.send(p2p(1, i), data, i);
  pair.settle();
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(pair.b.recvs.code(i), Code::kOk) << i;
    EXPECT_EQ(got[i], data);
  }
}

// Thousands of messages in both directions, posted in any order at any time on either side, with
// frames taken and delivered in any order: each arrives exactly or, where the two calls differ, is
// refused.
struct Message {
  bool from_a = false, mismatched = false;
  MessageId id;
  std::vector<std::byte> data, got;
  std::unique_ptr<Consumer> consumer;
};

std::vector<Message> conversation(std::mt19937& random, int count) {
  constexpr std::size_t kEdges[] = {0, 1, 64, 511, 512, 513, 1024, 1025, 5000};
  std::vector<Message> all;
  std::map<std::pair<bool, uint32_t>, uint64_t> next;
  for (int i = 0; i < count; ++i) {
    Message m;
    m.from_a = random() % 2 == 0;
    m.mismatched = random() % 50 == 0;
    const uint32_t tag = static_cast<uint32_t>(random() % 5);
    m.id = p2p(tag, next[{m.from_a, tag}]++);
    m.data =
        bytes(random() % 3 == 0 ? kEdges[random() % 9] : random() % 700, static_cast<uint32_t>(random()));
    m.got.resize(m.data.size());
    if (random() % 2 == 0) m.consumer = std::make_unique<Consumer>(m.got);
    all.push_back(std::move(m));
  }
  for (Message& m : all) {  // Consumer refers to `got`, which has its final address now
    if (m.consumer) m.consumer = std::make_unique<Consumer>(m.got);
  }
  return all;
}

void converse(uint32_t seed, int count, std::size_t window) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed << " window " << window);
  std::mt19937 random(seed);
  LinkPair pair(kSmall);
  pair.a.most_out = 1 + random() % 5;
  pair.b.most_out = 1 + random() % 5;
  std::vector<Message> all = conversation(random, count);
  std::vector<std::size_t> posts;  // even: send, odd: receive of message n/2; out of order within a window
  for (std::size_t i = 0; i < 2 * all.size(); ++i) posts.push_back(i);
  for (std::size_t i = 0; i < posts.size(); i += window) {
    std::shuffle(posts.begin() + static_cast<std::ptrdiff_t>(i),
                 posts.begin() + static_cast<std::ptrdiff_t>(std::min(i + window, posts.size())), random);
  }
  for (const std::size_t post : posts) {
    Message& m = all[post / 2];
    Side& from = m.from_a ? pair.a : pair.b;
    Side& to = m.from_a ? pair.b : pair.a;
    if (post % 2 == 0) {
      from.send(m.id, m.data, post / 2);
    } else {
      MessageId id = m.id;
      if (m.mismatched) id.digest = 2;
      to.link.post_recv({id, m.consumer ? std::span<std::byte>() : std::span(m.got), m.got.size(),
                         m.consumer.get(), &to.recvs, post / 2});
    }
    for (auto i = random() % 8; i > 0; --i) pair.step(random);
  }
  pair.settle();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Message& m = all[i];
    const Side& from = m.from_a ? pair.a : pair.b;
    const Side& to = m.from_a ? pair.b : pair.a;
    ASSERT_TRUE(from.sends.has(i)) << i;
    ASSERT_EQ(to.recvs.code(i), m.mismatched ? Code::kMismatch : Code::kOk) << i;
    if (m.data.size() > kSmall.eager_bytes || !m.mismatched) {
      EXPECT_EQ(from.sends.code(i), m.mismatched ? Code::kMismatch : Code::kOk);
    }
    if (!m.mismatched) {
      ASSERT_EQ(m.got, m.data) << i;
    }
  }
  for (const Side* side : {&pair.a, &pair.b}) {
    const Link::Counts left = side->link.counts();
    EXPECT_EQ(
        left.posted_sends + left.posted_recvs + left.unexpected + left.requests + left.unexpected_nbytes, 0u);
  }
}

TEST(LinkFlow, RandomConversationsArriveExactly) {
  for (uint32_t seed = 1; seed <= 8; ++seed) converse(seed, 2000, 40);
  for (uint32_t seed = 1; seed <= 8; ++seed) converse(100 + seed, 400, 800);  // everything out of order
}

}  // namespace
}  // namespace pc
