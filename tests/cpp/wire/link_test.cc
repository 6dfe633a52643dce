// Matching: a message arrives in the matching receive, complete and exact, or is refused on both
// sides.
#include "wire/link.h"

#include "link_pair.h"

namespace pc {
namespace {

constexpr std::size_t kSizes[] = {0,    1,    8,    63,   64,   65,   511,   512,   513,
                                  1023, 1024, 1025, 2048, 3072, 3073, 10240, 100001};

enum class Order { kSendFirst, kRecvFirst, kCrossing };

void transfer(const LinkLimits& limits, std::size_t nbytes, Order order, bool consume, bool by_view) {
  SCOPED_TRACE(::testing::Message() << nbytes << " bytes, order " << static_cast<int>(order) << " consume "
                                    << consume << by_view);
  LinkPair pair(limits);
  const std::vector<std::byte> sent = bytes(nbytes);
  std::vector<std::byte> got(nbytes);
  Consumer consumer(got);
  RecvOp recv{p2p(3), {}, nbytes, nullptr, &pair.b.recvs, 2};
  (consume ? (recv.consumer = &consumer, void()) : void(recv.payload = got));
  if (order == Order::kSendFirst) {
    pair.a.send(p2p(3), sent, 1);
    pair.settle();
    EXPECT_FALSE(pair.b.recvs.has(2));
    pair.b.link.post_recv(recv);
  } else if (order == Order::kRecvFirst) {
    pair.b.link.post_recv(recv);
    pair.settle();
    pair.a.send(p2p(3), sent, 1);
  } else {
    pair.a.send(p2p(3), sent, 1);
    pair.b.link.post_recv(recv);
  }
  while (LinkPair::take(pair.a) | LinkPair::take(pair.b) | LinkPair::deliver(pair.a, pair.b, by_view) |
         LinkPair::deliver(pair.b, pair.a)) {
  }
  ASSERT_EQ(pair.a.sends.code(1), Code::kOk);
  ASSERT_EQ(pair.b.recvs.code(2), Code::kOk);
  EXPECT_EQ(pair.b.recvs.done.at(2).nbytes, nbytes);
  EXPECT_EQ(got, sent);
  const Link::Counts rest = pair.b.link.counts();
  EXPECT_EQ(rest.posted_recvs + rest.unexpected + rest.requests + rest.unexpected_nbytes, 0u);
  EXPECT_EQ(pair.a.link.counts().posted_sends, 0u);
}

TEST(Link, EverySizeArrivesExactlyInEveryOrder) {
  for (const std::size_t nbytes : kSizes) {
    for (const Order order : {Order::kSendFirst, Order::kRecvFirst, Order::kCrossing}) {
      for (int how = 0; how < 4; ++how) transfer(kSmall, nbytes, order, (how & 1) != 0, (how & 2) != 0);
    }
  }
}

// Splits the bytes of one array into separate allocations, some of a single byte.
IoVec scattered(std::vector<std::byte>& from, std::vector<std::vector<std::byte>>& memory) {
  IoVec list;
  const std::size_t lengths[] = {1, 3, 64, 700, 1, 1, 5000};
  for (std::size_t done = 0, i = 0; done < from.size(); ++i) {
    const std::size_t nbytes =
        std::min(i % 150 < 80 ? 1 : lengths[i % std::size(lengths)], from.size() - done);
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(done);
    memory.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(nbytes));
    done += nbytes;
  }
  for (std::vector<std::byte>& piece : memory) list.add(piece.data(), piece.size());
  return list;
}

TEST(Link, AMessageOfManyPiecesArrivesAsOneMessage) {
  for (const std::size_t nbytes : kSizes) {
    LinkPair pair(kSmall);
    std::vector<std::byte> sent = bytes(nbytes), got(nbytes);
    std::vector<std::vector<std::byte>> memory;
    const IoVec list = scattered(sent, memory);
    pair.b.recv(p2p(3), got, 2);
    pair.a.link.post_send({p2p(3), ConstIoVec({nullptr, &list}, nbytes), &pair.a.sends, 1});
    pair.settle();
    EXPECT_EQ(pair.a.sends.code(1), Code::kOk);
    EXPECT_EQ(pair.b.recvs.code(2), Code::kOk);
    EXPECT_EQ(got, sent);
  }
}

TEST(Link, RealLimitsArriveExactlyToo) {
  for (const std::size_t nbytes : {kEagerBytes - 1, kEagerBytes, kEagerBytes + 1, kMaxSegmentBytes,
                                   kMaxSegmentBytes + 1, 5 * kMaxSegmentBytes}) {
    for (const Order order : {Order::kSendFirst, Order::kRecvFirst, Order::kCrossing})
      transfer({}, nbytes, order, true, false);
  }
}

std::vector<FrameType> types(const std::deque<Frame>& wire) {
  std::vector<FrameType> result;
  for (const Frame& frame : wire) result.push_back(frame.header.type);
  return result;
}

TEST(Link, AReceiveThatIsPostedFirstSavesTheRequest) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(2048), got(2048);
  pair.b.recv(p2p(1), got);
  while (LinkPair::take(pair.b)) {
  }
  EXPECT_EQ(types(pair.b.wire), std::vector<FrameType>{FrameType::kClear});
  LinkPair::deliver(pair.b, pair.a);
  pair.a.send(p2p(1), data);
  while (LinkPair::take(pair.a)) {
  }
  EXPECT_EQ(types(pair.a.wire), (std::vector<FrameType>{FrameType::kData, FrameType::kData}));
}

TEST(Link, ReceivesTakeTheirOwnMessageWhateverTheOrder) {
  LinkPair pair(kSmall);
  std::vector<std::vector<std::byte>> data, got;
  for (uint32_t i = 0; i < 12; ++i) {
    data.push_back(bytes(i % 3 == 2 ? 2000 + i : 10 + i, i));
    got.emplace_back(data.back().size());
  }
  for (uint32_t i = 0; i < 12; ++i) pair.a.send(p2p(i % 4, i / 4), data[i], i);
  pair.settle();
  for (uint32_t i = 12; i-- > 0;) {
    pair.b.recv(p2p(i % 4, i / 4), got[i], i);
    pair.settle();
    EXPECT_EQ(pair.b.recvs.code(i), Code::kOk);
  }
  EXPECT_EQ(got, data);
  EXPECT_EQ(pair.a.sends.done.size(), 12u);
}

TEST(Link, MessagesThatDifferInAnyPartOfTheNameAreDifferentMessages) {
  const MessageId base{{1, StreamClass::kCollective, 1}, 1, 1, 1};
  std::vector<MessageId> ids(6, base);
  ids[1].stream.group = 2;
  ids[2].stream.klass = StreamClass::kPointToPoint;
  ids[2].index = 0;  // a point-to-point message has only index 0
  ids[3].stream.tag = 2;
  ids[4].sequence = 2;
  ids[5].index = 2;
  LinkPair pair(kSmall);
  std::vector<std::byte> got(6);
  for (std::size_t i = ids.size(); i-- > 0;) pair.b.recv(ids[i], std::span(got).subspan(i, 1), i);
  const std::vector<std::byte> data = bytes(6);
  for (std::size_t i = 0; i < ids.size(); ++i) pair.a.send(ids[i], std::span(data).subspan(i, 1), i);
  pair.settle();
  EXPECT_EQ(got, data);
}

// Sizes (sent, expected) that cover every path: eager or rendezvous on either side.
TEST(Link, DisagreementIsAMismatchOnBothSidesAndTheLinkLivesOn) {
  const std::pair<std::size_t, std::size_t> kPairs[] = {{8, 8},    {8, 16},   {0, 8},       {8, 0},
                                                        {8, 4096}, {4096, 8}, {4096, 4096}, {4096, 8192}};
  for (const auto& [sent, wanted] : kPairs) {
    for (const Order order : {Order::kSendFirst, Order::kRecvFirst, Order::kCrossing}) {
      SCOPED_TRACE(::testing::Message()
                   << sent << " sent, " << wanted << " wanted, order " << static_cast<int>(order));
      LinkPair pair(kSmall);
      const std::vector<std::byte> data = bytes(sent);
      std::vector<std::byte> got(wanted, std::byte{0x5a});
      const std::vector<std::byte> untouched = got;
      if (order != Order::kRecvFirst) pair.a.send(p2p(1, 0, 111), data, 1);
      if (order == Order::kSendFirst) pair.settle();
      pair.b.recv(p2p(1, 0, 222), got, 1);
      if (order == Order::kRecvFirst) {
        pair.settle();
        pair.a.send(p2p(1, 0, 111), data, 1);
      }
      pair.settle();
      ASSERT_EQ(pair.b.recvs.code(1), Code::kMismatch);
      const Completion& refused = pair.b.recvs.done.at(1);
      EXPECT_EQ(refused.found.digest, 111u);
      EXPECT_EQ(refused.nbytes, sent);
      EXPECT_EQ(refused.status.peer(), 0);
      EXPECT_NE(refused.status.message().find(std::to_string(sent) + " bytes"), std::string::npos)
          << refused.status.message();
      EXPECT_NE(refused.status.message().find(std::to_string(wanted) + " bytes"), std::string::npos);
      EXPECT_EQ(got, untouched);
      ASSERT_TRUE(pair.a.sends.has(1));
      const bool eager =
          sent <= kSmall.eager_bytes && !(order == Order::kRecvFirst && wanted > kSmall.eager_bytes);
      EXPECT_EQ(pair.a.sends.code(1), eager ? Code::kOk : Code::kMismatch);
      if (!eager) {
        EXPECT_EQ(pair.a.sends.done.at(1).found.digest, 222u);
      }

      std::vector<std::byte> next(4096);
      const std::vector<std::byte> good = bytes(4096, 9);
      pair.b.recv(p2p(1, 1), next, 2);
      pair.a.send(p2p(1, 1), good, 2);
      pair.settle();
      EXPECT_EQ(pair.b.recvs.code(2), Code::kOk);
      EXPECT_EQ(next, good);
    }
  }
}

// Each mismatch would keep credit and leave a CLEAR behind if they were not released.
TEST(Link, RepeatedMismatchesNeverUseUpTheLink) {
  LinkPair pair(kSmall);
  std::vector<std::byte> data(8), got(4096);
  for (uint64_t i = 0; i < 1000; ++i) {
    pair.a.send(p2p(1, i), data, i);
    pair.b.recv(p2p(1, i), got, i);
    pair.settle();
    ASSERT_EQ(pair.b.recvs.code(i), Code::kMismatch);
    ASSERT_EQ(pair.a.sends.code(i), Code::kOk) << "not sent on credit any more";
  }
}

TEST(Link, AReceiveWithTooLittleMemoryIsRefusedAtOnce) {
  LinkPair pair(kSmall);
  std::vector<std::byte> got(8);
  pair.b.link.post_recv({p2p(1), got, 9, nullptr, &pair.b.recvs, 1});
  EXPECT_EQ(pair.b.recvs.code(1), Code::kInvalidArgument);
}

TEST(Link, AReceivePostedBetweenHeaderAndPayloadGetsTheMessage) {
  LinkPair pair(kSmall);
  for (uint64_t i = 0; i < 100; ++i) {
    const std::size_t wanted = i % 2 == 0 ? 100 : 4096;
    const std::vector<std::byte> data = bytes(100);
    std::vector<std::byte> got(wanted);
    pair.a.send(p2p(1, i), data, i);
    LinkPair::take(pair.a);
    const Result<PayloadDestination> to = pair.b.link.header_arrived(pair.a.wire.front().header);
    ASSERT_TRUE(to.is_ok());
    pair.b.recv(p2p(1, i), got, i);
    std::memcpy(to.value().where.data(), data.data(), data.size());
    ASSERT_TRUE(pair.b.link.payload_arrived().is_ok());
    EXPECT_EQ(pair.b.recvs.code(i), wanted == 100 ? Code::kOk : Code::kMismatch);
    if (wanted == 100) {
      EXPECT_EQ(got, data);
    }
    pair.a.wire.clear();
    pair.settle();
  }
}

}  // namespace
}  // namespace pc
