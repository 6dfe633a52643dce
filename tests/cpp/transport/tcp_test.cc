// The special cases of TCP: pending connections, impostors, damage, and ranks that never connect.
#include "transport/tcp/tcp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "conformance/raw_connection.h"
#include "conformance/world.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/sockets.h"
#include "wire/crc32c.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace pc::testing {
namespace {

std::unique_ptr<Transport> tcp(Rank rank, Rank size, int job = 1) {
  Result<std::unique_ptr<Transport>> made =
      make_tcp_transport({.rank = rank, .size = size, .credentials = credentials_of(job)});
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return std::move(made).value();
}

class RawPeer : public RawConnection {
 public:
  using RawConnection::RawConnection;
  // Connects to rank 0 unless `peer` names another rank.
  Status greet(Rank rank, Rank size, Role role = Role::kData, int job = 1, Rank peer = 0) {
    return shake_hands(Hello{.role = role, .rank = rank, .peer = peer, .size = size}, credentials_of(job));
  }
};

// No descriptor can be opened during its lifetime.
class FewDescriptors {
 public:
  FewDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{1, before_.rlim_max};  // poll() still accepts one
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

// Appends the trailer of one eager message, as on the wire.
void append_with_trailer(Bytes& frame, const Bytes& bytes) {
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  const uint32_t crc = crc32c(bytes);
  for (std::size_t i = 0; i < kTrailerBytes; ++i) frame.push_back(static_cast<std::byte>(crc >> (8 * i)));
}

Bytes eager_frame(const MessageId& id, const Bytes& payload, const Bytes& description = {}) {
  FrameHeader header;
  header.type = FrameType::kData;
  header.flags = kFlagEager;
  header.id = id;
  header.message_nbytes = payload.size();
  header.segment_nbytes = static_cast<uint32_t>(payload.size());
  header.description_nbytes = static_cast<uint32_t>(description.size());
  HeaderBytes encoded;
  encode(header, encoded);
  Bytes frame(encoded.begin(), encoded.end());
  if (!description.empty()) append_with_trailer(frame, description);
  append_with_trailer(frame, payload);
  return frame;
}

// Rank 0 of two. The test acts as rank 1, which has completed its handshakes.
struct AgainstRawPeer : ::testing::Test {
  AgainstRawPeer() {
    node.transport = tcp(0, 2);
    peer = std::make_unique<RawPeer>(node.transport->address());
    control = std::make_unique<RawPeer>(node.transport->address());
    node.connect_to([this] {
      EXPECT_TRUE(peer->greet(1, 2).is_ok());
      EXPECT_TRUE(control->greet(1, 2, Role::kControl).is_ok());
    });
  }
  ~AgainstRawPeer() override { node.die(); }
  Status status_of_receive(uint64_t sequence, Bytes& in) {
    node.recv(1, message(0, sequence), in);
    const std::vector<Completion> done = node.wait(1);
    return done.empty() ? Status(Code::kInternal, "no completion") : done[0].status;
  }
  Node node;
  std::unique_ptr<RawPeer> peer, control;
};

TEST_F(AgainstRawPeer, AConnectionThatCannotBeWatchedAnyMoreIsBroken) {
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_GE(::dup2(nothing.get(), node.transport->wait_fd()), 0);
  const Bytes large(64 * 1024 * 1024);
  FrameHeader clear;
  clear.type = FrameType::kClear;
  clear.id = message(0, 0);
  clear.message_nbytes = large.size();
  HeaderBytes encoded;
  encode(clear, encoded);
  peer->send(encoded);
  node.send(1, message(0, 0), large);  // fills the socket, so that the transport must watch for room
  Completion done;
  for (const Deadline deadline = Deadline::after(kWaitLimit); !node.queue.take(done);) {
    ASSERT_FALSE(deadline.expired());
    node.transport->poll();
  }
  EXPECT_EQ(done.status.code(), Code::kPeerFailure);
  EXPECT_NE(done.status.message().find("epoll_ctl"), std::string::npos) << done.status.to_string();
}

TEST_F(AgainstRawPeer, ACancelOfACollectiveEndsTheConnection) {
  FrameHeader cancel;
  cancel.type = FrameType::kCancel;
  cancel.id.sequence = 1;
  HeaderBytes encoded;
  encode(cancel, encoded);
  peer->send(encoded);
  Bytes in(100);
  EXPECT_EQ(status_of_receive(0, in).code(), Code::kPeerFailure);
}

TEST_F(AgainstRawPeer, FramesThatComeByteByByteArriveWhole) {
  const Bytes payload = pattern(150, 1);
  for (const std::size_t described : {0, 1, 40}) {
    const MessageId id{{0, StreamClass::kPointToPoint, 0}, described, 0, 1};
    Bytes in(payload.size());
    node.recv(1, id, in);
    for (const std::byte byte : eager_frame(id, payload, pattern(described, 2))) {
      peer->send({&byte, 1});
      node.transport->poll();
    }
    node.wait_ok(1);
    EXPECT_EQ(in, payload);
  }
}

TEST_F(AgainstRawPeer, ManyFramesInOneReadArriveEachWhole) {
  Bytes all;
  for (uint64_t i = 0; i < 500; ++i) {
    const Bytes frame = eager_frame(message(0, i), pattern(i, i));
    if (i == 0) continue;  // An empty message has no trailer. The suite sends such messages.
    all.insert(all.end(), frame.begin(), frame.end());
  }
  std::thread talker([&] { peer->send(all); });
  for (uint64_t i = 1; i < 500; ++i) {
    Bytes in(i);
    EXPECT_TRUE(status_of_receive(i, in).is_ok());
    EXPECT_EQ(in, pattern(i, i));
  }
  talker.join();
}

TEST_F(AgainstRawPeer, ADamagedPayloadIsRefusedAndEndsTheConnection) {
  constexpr std::size_t kBytes = 60'000;
  Bytes frame = eager_frame(message(0, 0), pattern(kBytes, 1));
  frame[kHeaderBytes + kBytes / 2] ^= std::byte{1};
  peer->send(frame);
  Bytes in(kBytes);
  const Status status = status_of_receive(0, in);
  EXPECT_EQ(status.code(), Code::kPeerFailure);
  EXPECT_EQ(status.peer(), 1);
  EXPECT_NE(status.message().find("damaged"), std::string::npos) << status.to_string();
  EXPECT_TRUE(peer->is_cut_off());
  EXPECT_EQ(status_of_receive(1, in).message(), status.message())
      << "every later receive gets the same error";
}

TEST_F(AgainstRawPeer, ADamagedDescriptionIsRefused) {
  const MessageId id{{0, StreamClass::kPointToPoint, 0}, 0, 0, 1};
  Bytes frame = eager_frame(id, pattern(100, 1), pattern(40, 2));
  frame[kHeaderBytes + 7] ^= std::byte{1};
  peer->send(frame);
  Bytes in(100);
  const Status status = status_of_receive(0, in);
  EXPECT_EQ(status.code(), Code::kPeerFailure);
  EXPECT_NE(status.message().find("description has CRC32C"), std::string::npos) << status.to_string();
}

TEST_F(AgainstRawPeer, ADamagedHeaderIsRefused) {
  Bytes frame = eager_frame(message(0, 0), pattern(100, 1));
  frame[20] ^= std::byte{1};
  peer->send(frame);
  Bytes in(100);
  const Status status = status_of_receive(0, in);
  EXPECT_EQ(status.code(), Code::kPeerFailure) << status.to_string();
  EXPECT_EQ(status.peer(), 1);
}

TEST_F(AgainstRawPeer, AConnectionThatEndsInsideAFrameIsAFailure) {
  const Bytes frame = eager_frame(message(0, 0), pattern(100, 1));
  peer->send(std::span(frame).first(kHeaderBytes + 50));
  peer->hang_up();
  Bytes in(100);
  const Status status = status_of_receive(0, in);
  EXPECT_EQ(status.code(), Code::kPeerFailure);
  EXPECT_EQ(status.peer(), 1);
  EXPECT_NE(status.message().find("connection closed"), std::string::npos) << status.to_string();
}

TEST_F(AgainstRawPeer, ShutdownSeesNoFailureInAPeerThatHasLeft) {
  Bytes in(4);
  node.recv(1, message(0, 0), in);
  peer->hang_up();
  node.transport->shutdown(Deadline::after(kWaitLimit));
  const std::vector<Completion> done = node.wait(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code(), Code::kAborted) << done[0].status.to_string();
}

TEST_F(AgainstRawPeer, DamageIsAlsoReportedToARankInShutdown) {
  Bytes frame = eager_frame(message(0, 0), pattern(100, 1));
  frame[20] ^= std::byte{1};
  Bytes in(100);
  node.recv(1, message(0, 0), in);
  peer->send(frame);
  node.transport->shutdown(Deadline::after(kWaitLimit));
  const std::vector<Completion> done = node.wait(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code(), Code::kPeerFailure) << done[0].status.to_string();
}

TEST_F(AgainstRawPeer, AResetIsAFailureOfThePeer) {
  Bytes in(100);
  node.recv(1, message(0, 0), in);
  peer->reset();
  const std::vector<Completion> done = node.wait(1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status.code(), Code::kPeerFailure);
  EXPECT_EQ(done[0].status.peer(), 1);
  EXPECT_NE(done[0].status.message().find("ECONNRESET"), std::string::npos) << done[0].status.to_string();
}

TEST(TcpBootstrap, PendingConnectionsDoNotKeepTheRanksApart) {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::string> addresses;
  for (Rank rank = 0; rank < 3; ++rank) {
    transports.push_back(tcp(rank, 3));
    addresses.push_back(transports.back()->address());
  }
  std::vector<std::unique_ptr<RawPeer>> pending;
  const auto pending_peer = [&]() -> RawPeer& {
    pending.push_back(std::make_unique<RawPeer>(addresses[0]));
    return *pending.back();
  };
  pending_peer();                         // sends nothing
  pending_peer().send(pattern(10, 1));    // sends the beginning of a hello
  pending_peer().send(pattern(1000, 2));  // garbage
  pending_peer().hang_up();               // has already closed the connection
  std::vector<std::thread> threads;
  for (const std::unique_ptr<Transport>& transport : transports) {
    threads.emplace_back([&] {
      const Status connected = transport->connect(addresses, {Deadline::after(kWaitLimit)});
      EXPECT_TRUE(connected.is_ok()) << connected.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpBootstrap, AMismatchedPeerIsRefusedWithTheDifference) {
  const std::unique_ptr<Transport> zero = tcp(0, 3);
  std::thread connecting([&] {
    EXPECT_FALSE(zero->connect({zero->address(), "127.0.0.1:1", "127.0.0.1:1"}, {Deadline::after(kWaitLimit)})
                     .is_ok());
  });
  const auto expect_refusal = [&](const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.to_string();
  };
  expect_refusal(RawPeer(zero->address()).greet(1, 3, Role::kData, 2), "belongs to job");
  expect_refusal(RawPeer(zero->address()).greet(1, 4), "world of 3 ranks, we for 4");
  expect_refusal(RawPeer(zero->address()).greet(0, 3), "so are we");
  expect_refusal(RawPeer(zero->address()).greet(1, 3, Role::kData, 1, 2),
                 "belongs to another process by now");
  expect_refusal(
      RawPeer(zero->address())
          .shake_hands({.role = Role::kData, .rank = 1, .peer = 0, .size = 3, .epoch = 7}, credentials_of(1)),
      "epoch 0");
  expect_refusal(
      RawPeer(zero->address())
          .shake_hands({.role = Role::kData, .rank = 1, .peer = 0, .size = 3}, credentials_of(1, 9)),
      "the keys differ");
  zero->abort(Status(Code::kAborted, "enough"));
  connecting.join();
}

TEST(TcpBootstrap, ASecondProcessWithTheSameRankIsRefusedAndBothAreNotified) {
  const std::unique_ptr<Transport> zero = tcp(0, 3);
  std::thread connecting([&] {
    EXPECT_TRUE(zero->connect({zero->address(), "127.0.0.1:1", "127.0.0.1:1"}, {Deadline::after(kWaitLimit)})
                    .is_ok());
  });
  std::vector<std::unique_ptr<RawPeer>> peers;
  const auto greet = [&](Rank rank, Role role) {
    peers.push_back(std::make_unique<RawPeer>(zero->address()));
    return peers.back()->greet(rank, 3, role);
  };
  for (const Role role : {Role::kData, Role::kControl}) {
    EXPECT_TRUE(greet(1, role).is_ok());
    const Status second = greet(1, role);
    EXPECT_EQ(second.code(), Code::kMismatch);
    EXPECT_NE(second.message().find("give each process its own rank"), std::string::npos)
        << second.to_string();
  }
  EXPECT_TRUE(greet(2, Role::kData).is_ok());
  EXPECT_TRUE(greet(2, Role::kControl).is_ok());
  connecting.join();
}

TEST(TcpBootstrap, ARankWithANumberInUseGivesUpAtOnce) {
  const std::unique_ptr<Transport> zero = tcp(0, 3), one = tcp(1, 3);
  std::thread connecting([&] {
    EXPECT_FALSE(zero->connect({zero->address(), "127.0.0.1:1", "127.0.0.1:1"}, {Deadline::after(kWaitLimit)})
                     .is_ok());
  });
  RawPeer impostor(zero->address());
  EXPECT_TRUE(impostor.greet(1, 3).is_ok());
  const Status status =
      one->connect({zero->address(), one->address(), "127.0.0.1:1"}, {Deadline::after(kWaitLimit)});
  EXPECT_EQ(status.code(), Code::kMismatch) << "and no timeout: " << status.to_string();
  EXPECT_EQ(status.peer(), 0);
  zero->abort(Status(Code::kAborted, "enough"));
  connecting.join();
}

TEST(TcpBootstrap, OfSeveralAddressesOfAPeerOneThatAnswersIsFound) {
  std::string refusing;
  {
    const std::unique_ptr<Transport> gone = tcp(0, 2);
    refusing = gone->address();
  }
  const std::unique_ptr<Transport> other =
      tcp(0, 2, 2);  // of another job, at an address that could have been ours
  const std::unique_ptr<Transport> zero =
      make_tcp_transport(
          {.rank = 0, .size = 2, .credentials = credentials_of(1), .bind_ips = {"127.0.0.1", "127.0.0.2"}})
          .value();
  const std::string both = zero->address();
  EXPECT_EQ(std::count(both.begin(), both.end(), ','), 1) << both;
  const std::unique_ptr<Transport> one = tcp(1, 2);
  const std::vector<std::string> addresses = {refusing + "," + other->address() + "," + zero->address(),
                                              one->address()};
  std::thread pending_peer(
      [&] { static_cast<void>(other->connect(addresses, {Deadline::after(kWaitLimit)})); });
  std::thread connecting(
      [&] { EXPECT_TRUE(zero->connect(addresses, {Deadline::after(kWaitLimit)}).is_ok()); });
  const Status connected = one->connect(addresses, {Deadline::after(kWaitLimit)});
  EXPECT_TRUE(connected.is_ok()) << connected.to_string();
  other->abort(Status(Code::kAborted, "enough"));
  pending_peer.join();
  connecting.join();
}

TEST(TcpBootstrap, TheErrorAtTheDeadlineNamesEveryMissingRankAndWhatHappened) {
  // Rank 1 of 4: rank 0's address refuses connections, rank 2 connects, rank 3 never does, and
  // there is an impostor.
  std::string refusing;
  {
    const std::unique_ptr<Transport> gone = tcp(0, 4);
    refusing = gone->address();
  }
  const std::unique_ptr<Transport> one = tcp(1, 4);
  RawPeer two(one->address()), control(one->address()), impostor(one->address());
  std::thread others([&] {
    EXPECT_TRUE(two.greet(2, 4, Role::kData, 1, 1).is_ok());
    EXPECT_TRUE(control.greet(2, 4, Role::kControl, 1, 1).is_ok());
    EXPECT_FALSE(impostor.greet(3, 4, Role::kData, 2, 1).is_ok());
  });
  const Status status =
      one->connect({refusing, one->address(), "127.0.0.1:22222", "127.0.0.1:33333"}, {Deadline::after(0.5)});
  others.join();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.rank(), 1);
  EXPECT_EQ(status.peer(), 0);
  const std::string& text = status.message();
  EXPECT_NE(text.find("2 of 3 peers are missing"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0 (" + refusing + ")"), std::string::npos) << text;
  EXPECT_NE(text.find("ECONNREFUSED"), std::string::npos) << text;
  EXPECT_EQ(text.find("22222"), std::string::npos) << "rank 2 is here: " << text;
  EXPECT_NE(
      text.find("rank 3 (127.0.0.1:33333) has not called us; a process that claims to be this rank did"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("Turned away 1 "), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 0 ("), text.rfind("rank 0 (")) << "named once: " << text;
}

TEST(TcpBootstrap, ARankWithoutItsControlConnectionIsMissing) {
  const std::unique_ptr<Transport> zero = tcp(0, 2);
  RawPeer one(zero->address());
  std::thread greeting([&] { EXPECT_TRUE(one.greet(1, 2).is_ok()); });
  const Status status = zero->connect({zero->address(), "127.0.0.1:1"}, {Deadline::after(0.5)});
  greeting.join();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("1 of 1 peers are missing"), std::string::npos) << status.message();
}

TEST(TcpBootstrap, ARankThatListensButDoesNotAnswerIsNamed) {
  const std::unique_ptr<Transport> zero = tcp(0, 2), one = tcp(1, 2);
  const Status status = one->connect({zero->address(), one->address()}, {Deadline::after(0.1)});
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.peer(), 0);
  EXPECT_NE(status.message().find("does not say hello"), std::string::npos) << status.message();
}

TEST(TcpBootstrap, AProcessOutOfDescriptorsGetsTheReason) {
  // UBSan opens a pipe when it checks a type for the first time, so all types are used here first.
  const std::unique_ptr<Transport> first = tcp(0, 2);
  EXPECT_FALSE(first->connect({first->address(), "127.0.0.1:1"}, {Deadline::after(0.01)}).is_ok());
  const std::unique_ptr<Transport> zero = tcp(0, 2);
  const RawPeer waiting(zero->address());
  const FewDescriptors few;
  const Status status = zero->connect({zero->address(), "127.0.0.1:1"}, {Deadline::after(0.1)});
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("EMFILE"), std::string::npos) << status.message();
}

TEST(TcpBootstrap, AbortEndsConnecting) {
  const std::unique_ptr<Transport> zero = tcp(0, 2);
  std::thread other([&] { zero->abort(Status(Code::kInterrupted, "enough")); });
  const Status status = zero->connect({zero->address(), "127.0.0.1:1"}, {Deadline::after(kWaitLimit)});
  other.join();
  EXPECT_EQ(status.code(), Code::kInterrupted) << status.to_string();
}

TEST(TcpSockets, OnlyOneNumericAddressIsListenedOn) {
  for (const char* address : {"0.0.0.0", "::", "::ffff:0.0.0.0", "localhost", "", "127.0.0.1:5"}) {
    const Result<std::unique_ptr<Transport>> made = make_tcp_transport({.bind_ips = {address}});
    ASSERT_FALSE(made.is_ok()) << address;
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument) << address;
  }
}

TEST(TcpSockets, ALivePeerThatDoesNotReadForALongTimeIsKept) {
  // A socket without a peer counts as one between hosts. With a user timeout the kernel would end a
  // connection when the receiver keeps its window shut, even if it acknowledges every probe.
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tune_connection(fd.get());
  int value = -1;
  socklen_t length = sizeof value;
  ASSERT_EQ(::getsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
  EXPECT_EQ(value, 1) << "a host that has vanished is found";
  ASSERT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length), 0);
  EXPECT_EQ(value, 0);
}

int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::getsockopt(fd, level, name, &value, &length), 0);
  return value;
}

TEST(TcpSockets, AControlConnectionFindsAHostThatHasVanishedWithinSeconds) {
  const Fd fd(
      ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // without a peer it counts as one between hosts
  expect_answers(fd.get());
  EXPECT_EQ(option_of(fd.get(), SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option_of(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(option_of(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_EQ(option_of(fd.get(), IPPROTO_TCP, TCP_KEEPCNT), 3);
  EXPECT_EQ(option_of(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 3000);
  EXPECT_EQ(option_of(fd.get(), IPPROTO_TCP, TCP_NODELAY), 1);
}

TEST(TcpSockets, AControlConnectionWithinAHostWaitsForABusyKernel) {
  World world({"tcp",
               [](Rank size, const LinkLimits&) {
                 std::vector<std::unique_ptr<Transport>> all;
                 for (Rank rank = 0; rank < size; ++rank) all.push_back(tcp(rank, size));
                 return all;
               }},
              2);
  for (const Rank rank : {0, 1}) {  // accepted, and connected
    const std::vector<ByteStream> sockets = world.node(rank).transport->take_control_sockets();
    const int fd = sockets[static_cast<std::size_t>(1 - rank)].fd();
    EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
  }
}

}  // namespace
}  // namespace pc::testing
