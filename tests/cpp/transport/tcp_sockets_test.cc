// Several connections between two ranks: large messages are split over all of them, and the end of
// one ends all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/raw_connection.h"
#include "conformance/world.h"
#include "transport/tcp/tcp.h"
#include "wire/frame.h"

namespace pc::testing {
namespace {

constexpr int kSockets = 3;

std::unique_ptr<Transport> tcp_of(int sockets, Rank rank) {
  Result<std::unique_ptr<Transport>> made =
      make_tcp_transport({.rank = rank, .size = 2, .credentials = credentials_of(1), .sockets = sockets});
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return std::move(made).value();
}

const TransportKind kTcp{"tcp", [](Rank size, const LinkLimits&) {
                           std::vector<std::unique_ptr<Transport>> made;
                           for (Rank rank = 0; rank < size; ++rank) made.push_back(tcp_of(kSockets, rank));
                           return made;
                         }};

MessageId collective(uint64_t sequence) {
  return {.stream = {.group = 1, .klass = StreamClass::kCollective, .tag = 0},
          .sequence = sequence,
          .index = 0,
          .digest = 0};
}

Status greet(RawConnection& connection, Role role, int number) {
  return connection.shake_hands(
      Hello{.role = role, .number = static_cast<uint8_t>(number), .rank = 1, .peer = 0, .size = 2},
      credentials_of(1));
}

// Rank 0 of two. The test acts as rank 1, which has completed its handshakes.
struct AgainstRawSockets : ::testing::Test {
  AgainstRawSockets() {
    node.transport = tcp_of(kSockets, 0);
    node.connect_to([this] {
      RawConnection one_too_many(node.transport->address());
      EXPECT_EQ(greet(one_too_many, Role::kData, kSockets).code(), Code::kMismatch);
      control = std::make_unique<RawConnection>(node.transport->address());
      EXPECT_TRUE(greet(*control, Role::kControl, 0).is_ok());
      for (int i = kSockets - 1; i >= 0; --i) {  // in any order of arrival
        data.insert(data.begin(), std::make_unique<RawConnection>(node.transport->address()));
        EXPECT_TRUE(greet(*data.front(), Role::kData, i).is_ok());
      }
    });
  }
  ~AgainstRawSockets() override { node.die(); }
  FrameHeader receive(RawConnection& from) {
    HeaderBytes bytes = {};
    EXPECT_EQ(from.receive(bytes), bytes.size());
    const Result<FrameHeader> header = decode(bytes);
    EXPECT_TRUE(header.is_ok()) << header.status().to_string();
    return header.is_ok() ? header.value() : FrameHeader{};
  }
  static void clear(RawConnection& to, const MessageId& id, uint64_t nbytes) {
    FrameHeader header;
    header.type = FrameType::kClear;
    header.id = id;
    header.message_nbytes = nbytes;
    HeaderBytes encoded;
    encode(header, encoded);
    to.send(encoded);
  }
  Node node;
  std::unique_ptr<RawConnection> control;
  std::vector<std::unique_ptr<RawConnection>> data;
};

TEST_F(AgainstRawSockets, EachConnectionCarriesAPartOfALargeMessageUnderItsName) {
  constexpr uint64_t kBytes = 400'000;
  constexpr std::array<uint64_t, 4> kBegins = {0, 133'376, 266'752, kBytes};  // multiples of the cache line
  const Bytes out = pattern(kBytes, 1);
  node.send(1, collective(0), out);
  for (const std::unique_ptr<RawConnection>& connection : data) {
    const FrameHeader request = receive(*connection);
    EXPECT_EQ(request.type, FrameType::kRequest);
    EXPECT_EQ(request.message_nbytes, kBytes) << "of the whole message";
    clear(*connection, collective(0), kBytes);
  }
  std::thread waiting([this] { node.wait_ok(1); });
  for (std::size_t i = 0; i < data.size(); ++i) {
    const FrameHeader part = receive(*data[i]);
    EXPECT_EQ(part.type, FrameType::kData);
    EXPECT_EQ(part.offset, kBegins[i]);
    EXPECT_EQ(part.segment_nbytes, kBegins[i + 1] - kBegins[i]);
    Bytes payload(part.segment_nbytes);
    EXPECT_EQ(data[i]->receive(payload), payload.size());
    EXPECT_TRUE(
        std::equal(payload.begin(), payload.end(), out.begin() + static_cast<std::ptrdiff_t>(part.offset)));
    EXPECT_EQ(data[i]->receive(kTrailerBytes), kTrailerBytes);
  }
  waiting.join();
}

TEST_F(AgainstRawSockets, PartsAreNotLargerThanTheyMustBe) {
  const Bytes out = pattern(3 * 65'536, 1);
  node.send(1, collective(0), out);
  for (const std::unique_ptr<RawConnection>& connection : data) {
    receive(*connection);
    clear(*connection, collective(0), 3 * 65'536);
  }
  std::thread waiting([this] { node.wait_ok(1); });
  for (const std::unique_ptr<RawConnection>& connection : data) {
    EXPECT_EQ(receive(*connection).segment_nbytes, 65'536U);
    EXPECT_EQ(connection->receive(65'536 + kTrailerBytes), 65'536 + kTrailerBytes);
  }
  waiting.join();
}

TEST_F(AgainstRawSockets, ASmallMessageOfACollectiveGoesOverTheFirst) {
  const Bytes out = pattern(kEagerBytes, 1);
  node.send(1, collective(1), out);
  EXPECT_EQ(receive(*data[0]).segment_nbytes, kEagerBytes);
}

TEST_F(AgainstRawSockets, MessagesOfSendAlternate) {
  const Bytes out = pattern(1 << 20, 1);
  constexpr std::array<std::size_t, 6> kOrder = {2, 0, 1, 0, 1, 2};
  for (uint64_t i = 0; i < kOrder.size(); ++i) {
    node.send(1, message(2, i), out);
    const FrameHeader request = receive(*data[kOrder[i]]);
    EXPECT_EQ(request.id.sequence, i);
    EXPECT_EQ(request.message_nbytes, 1U << 20);
  }
}

TEST_F(AgainstRawSockets, AnyThatBreaksEndsAll) {
  Bytes small(8), large(1 << 20);
  node.recv(1, message(0, 0), small, 0);
  node.recv(1, collective(1), large, 1);
  data.back()->hang_up();
  for (const Completion& done : node.wait(2)) {
    EXPECT_EQ(done.status.code(), Code::kPeerFailure) << done.status.to_string();
    EXPECT_EQ(done.status.peer(), 1);
  }
  Bytes cleared(kHeaderBytes);
  data[0]->receive(cleared);
  EXPECT_TRUE(data[0]->is_cut_off());
}

// Counts completions.
struct Once final : CompletionSink {
  void complete(Completion&&) override { ++notified; }
  std::atomic<int> notified{0};
};

TEST(TcpSockets, CollectivesOfEverySizeArriveExactlyInBothDirectionsAtOnce) {
  World world(kTcp, 2);
  world.run([](Node& node) {
    uint64_t sequence = 0;
    for (const std::size_t nbytes :
         {65'536, 65'537, 98'304, 98'305, 131'072, 262'143, 1 << 20, (16 << 20) + 5}) {
      const Bytes out = pattern(nbytes, sequence * 2 + static_cast<uint64_t>(node.rank));
      Bytes in(nbytes);
      node.recv(1 - node.rank, collective(sequence), in);
      node.send(1 - node.rank, collective(sequence), out);
      node.wait_ok(2);
      EXPECT_EQ(in, pattern(nbytes, sequence * 2 + static_cast<uint64_t>(1 - node.rank))) << nbytes;
      ++sequence;
    }
  });
}

TEST(TcpSockets, RanksThatDisagreeAboutTheSizeGetAnErrorThoughTheySplitOtherwise) {
  constexpr std::size_t kSmall = 100, kInTwo = 70'000, kSplit = 1 << 20;
  constexpr std::array<std::array<std::size_t, 2>, 4> kCases = {
      {{kSmall, kSplit}, {kSplit, kSmall}, {kInTwo, kSplit}, {kSplit, kInTwo}}};
  World world(kTcp, 2);
  world.run([&](Node& node) {
    for (uint64_t i = 0; i < 8; ++i) {
      const auto& sizes = kCases[i % 4];
      const MessageId id = i < 4 ? message(0, i) : collective(i);
      Bytes mine(sizes[static_cast<std::size_t>(node.rank)], std::byte{7});
      node.rank == 0 ? node.send(1, id, mine) : node.recv(0, id, mine);
      const std::vector<Completion> done = node.wait(1);
      ASSERT_EQ(done.size(), 1U);
      // an eager send completes when it is written
      const bool knows = node.rank == 1 || mine.size() != kSmall;
      EXPECT_EQ(done[0].status.code(), knows ? Code::kMismatch : Code::kOk) << done[0].status.to_string();
      EXPECT_EQ(mine, Bytes(mine.size(), std::byte{7})) << "nothing of it may be stored";
      if (i >= 4) {  // as a failed collective does
        node.transport->cancel(&node.queue, done[0].status);
        node.transport->discard(id.stream.group, id.sequence);
      }
      Bytes next = node.rank == 0 ? pattern(kSplit, i) : Bytes(kSplit);  // the connections are still usable
      node.rank == 0 ? node.send(1, collective(100 + i), next) : node.recv(0, collective(100 + i), next);
      node.wait_ok(1);
      EXPECT_EQ(next, pattern(kSplit, i));
    }
  });
}

TEST(TcpSockets, ACollectiveThatIsGivenUpInTheMiddleNotifiesNoRankAndNeedsNoMemory) {
  World world(kTcp, 2);
  constexpr std::size_t kBytes = 32 << 20;
  Once once;
  auto gone = std::make_unique<Bytes>(kBytes);
  const Bytes out = pattern(kBytes, 1);
  Node &sender = world.node(0), &receiver = world.node(1);
  receiver.transport->post_recv(
      0, {.id = collective(1), .payload = *gone, .nbytes = kBytes, .completions = &once});
  sender.send(1, collective(1), out);
  const auto has_begun = [&] {
    return std::any_of(gone->begin(), gone->end(), [](std::byte b) { return b != std::byte{0}; });
  };
  for (const Deadline deadline = Deadline::after(kWaitLimit); !has_begun() && !deadline.expired();) {
    sender.transport->poll();
    receiver.transport->poll();
  }
  EXPECT_FALSE(receiver.transport->cancel(&once, Status(Code::kTimeout, "too late")))
      << "the sender was notified";
  receiver.transport->discard(1, 1);
  gone.reset();
  world.run([&](Node& node) {
    Bytes next = node.rank == 0 ? pattern(1 << 20, 2) : Bytes(1 << 20);
    node.rank == 0 ? node.send(1, collective(2), next, 2) : node.recv(0, collective(2), next, 2);
    node.wait_ok(node.rank == 0 ? 2 : 1);  // the message that the receiver has cancelled is sent completely
    EXPECT_EQ(next, pattern(1 << 20, 2));
  });
  EXPECT_EQ(once.notified, 0);
}

TEST(TcpSockets, SoManyAreNotPossible) {
  for (const int sockets : {-1, 0, kMostSockets + 1}) {
    const Status refused = make_tcp_transport({.rank = 0, .size = 2, .sockets = sockets}).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << sockets;
  }
}

}  // namespace
}  // namespace pc::testing
