// The contract of every transport. A new transport adds itself to the list in
// tests/cpp/transport/conformance_test.cc, the only file that includes this one.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

#include "conformance/world.h"
#include "descriptors.h"

namespace pc::testing {

class TransportSuite : public ::testing::TestWithParam<TransportKind> {};

constexpr std::size_t kSizes[] = {
    0, 1, 7, 8, 4096, 65535, 65536, 65537, 256 * 1024, 256 * 1024 + 1, 1024 * 1024 + 3, 16 * 1024 * 1024};
constexpr std::size_t kLarge = 300 * 1000;  // above the eager limit, more than one segment

TEST_P(TransportSuite, MessagesOfEverySizeArriveExactlyInBothDirectionsAtOnce) {
  World world(GetParam(), 2);
  world.run([](Node& node) {
    const Rank peer = 1 - node.rank;
    for (uint64_t i = 0; i < std::size(kSizes); ++i) {
      const std::vector<std::byte> out = pattern(kSizes[i], i * 2 + static_cast<uint64_t>(node.rank));
      std::vector<std::byte> in(kSizes[i]);
      node.recv(peer, message(0, i), in);
      node.send(peer, message(0, i), out);
      node.wait_ok(2);
      EXPECT_EQ(in, pattern(kSizes[i], i * 2 + static_cast<uint64_t>(peer))) << kSizes[i] << " bytes";
    }
  });
}

TEST_P(TransportSuite, EveryPairOfManyRanksExchangesMessages) {
  constexpr Rank kRanks = 7;  // more connections than a transport polls one by one
  World world(GetParam(), kRanks);
  world.run([](Node& node) {
    std::vector<std::vector<std::byte>> in(kRanks, std::vector<std::byte>(kLarge)), out;
    for (Rank peer = 0; peer < kRanks; ++peer) {
      out.push_back(pattern(kLarge, static_cast<uint64_t>(node.rank * kRanks + peer)));
    }
    for (Rank peer = 0; peer < kRanks; ++peer) {
      if (peer == node.rank) continue;
      node.recv(peer, message(0, 0), in[static_cast<std::size_t>(peer)]);
      node.send(peer, message(0, 0), out[static_cast<std::size_t>(peer)]);
    }
    node.wait_ok(2 * (kRanks - 1));
    for (Rank peer = 0; peer < kRanks; ++peer) {
      if (peer == node.rank) continue;
      EXPECT_EQ(in[static_cast<std::size_t>(peer)],
                pattern(kLarge, static_cast<uint64_t>(peer * kRanks + node.rank)));
    }
  });
}

TEST_P(TransportSuite, ReceivesMayBePostedInAnotherOrderThanSends) {
  World world(GetParam(), 2);
  constexpr uint32_t kTags = 8;
  world.run([](Node& node) {
    std::vector<std::vector<std::byte>> bytes;
    for (uint32_t tag = 0; tag < kTags; ++tag) {
      const std::size_t nbytes = tag % 2 == 0 ? kLarge : 100;
      bytes.push_back(node.rank == 0 ? pattern(nbytes, tag) : std::vector<std::byte>(nbytes));
    }
    if (node.rank == 0) {
      for (uint32_t tag = 0; tag < kTags; ++tag) node.send(1, message(tag, 0), bytes[tag]);
      return node.wait_ok(kTags);
    }
    // The receives are posted last to first, and each completes before the next is posted.
    for (uint32_t tag = kTags; tag-- > 0;) {
      node.recv(0, message(tag, 0), bytes[tag]);
      node.wait_ok(1);
      EXPECT_EQ(bytes[tag], pattern(bytes[tag].size(), tag)) << "tag " << tag;
    }
  });
}

TEST_P(TransportSuite, ThousandsOfMessagesMayBeOutstanding) {
  World world(GetParam(), 2);
  constexpr uint64_t kMessages = 3000;
  world.run([](Node& node) {
    std::vector<uint64_t> in(kMessages), out(kMessages);
    std::iota(out.begin(), out.end(), 1000 * static_cast<uint64_t>(node.rank));
    for (uint64_t i = 0; i < kMessages; ++i)
      node.send(1 - node.rank, message(0, i), std::as_bytes(std::span(&out[i], 1)));
    for (uint64_t i = 0; i < kMessages; ++i) {
      node.recv(1 - node.rank, message(0, i), std::as_writable_bytes(std::span(&in[i], 1)));
    }
    node.wait_ok(2 * kMessages);
    std::vector<uint64_t> expected(kMessages);
    std::iota(expected.begin(), expected.end(), 1000 * static_cast<uint64_t>(1 - node.rank));
    EXPECT_EQ(in, expected);
  });
}

TEST_P(TransportSuite, SeveralThreadsShareOneTransport) {
  World world(GetParam(), 2);
  world.run([](Node& node) {
    std::vector<std::thread> threads;
    for (uint32_t tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&node, tag] {
        CompletionQueue queue;
        const Rank peer = 1 - node.rank;
        for (uint64_t i = 0; i < 30; ++i) {
          const std::size_t nbytes = (i % 3 == 0 ? kLarge : 10) + tag;
          const std::vector<std::byte> out =
              pattern(nbytes, i * 8 + tag * 2 + static_cast<uint64_t>(node.rank));
          std::vector<std::byte> in(nbytes);
          node.transport->post_recv(
              peer, {.id = message(tag, i), .payload = in, .nbytes = nbytes, .completions = &queue});
          node.transport->post_send(peer, {.id = message(tag, i), .payload = out, .completions = &queue});
          for (const Completion& done : node.wait_on(queue, 2)) EXPECT_TRUE(done.status.is_ok());
          EXPECT_EQ(in, pattern(nbytes, i * 8 + tag * 2 + static_cast<uint64_t>(peer)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

struct Recorder final : SegmentSink {
  explicit Recorder(std::size_t nbytes) : bytes(nbytes) {}
  std::vector<std::byte> bytes;
  std::size_t pieces = 0, seen_nbytes = 0;
  bool aligned = true, in_order = true;
  void consume(uint64_t offset, std::span<const std::byte> data) override {
    in_order = in_order && offset == seen_nbytes;
    aligned = aligned && offset % 64 == 0;
    ASSERT_LE(offset + data.size(), bytes.size());
    std::copy(data.begin(), data.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    seen_nbytes += data.size();
    ++pieces;
  }
};

TEST_P(TransportSuite, AConsumerSeesEveryByteOnceAndInOrder) {
  World world(GetParam(), 2, {.segment_bytes = 128 * 1024});
  world.run([](Node& node) {
    for (uint64_t i = 0; i < std::size(kSizes); ++i) {
      const std::vector<std::byte> bytes = pattern(kSizes[i], i);
      Recorder recorder(kSizes[i]);
      if (node.rank == 0) {
        node.send(1, message(0, i), bytes);
      } else {
        node.transport->post_recv(0, {.id = message(0, i),
                                      .payload = {},
                                      .nbytes = kSizes[i],
                                      .consumer = &recorder,
                                      .completions = &node.queue});
      }
      node.wait_ok(1);
      if (node.rank == 0) continue;
      EXPECT_EQ(recorder.bytes, bytes);
      EXPECT_EQ(recorder.seen_nbytes, bytes.size());
      EXPECT_TRUE(recorder.in_order);
      EXPECT_TRUE(recorder.aligned);
      EXPECT_GE(recorder.pieces, (kSizes[i] + 128 * 1024 - 1) / (128 * 1024));
    }
  });
}

TEST_P(TransportSuite, MessagesThatArriveBeforeTheirReceiveAreKept) {
  World world(GetParam(), 2);
  world.run([](Node& node) {
    std::vector<std::byte> small = pattern(100, 1), large = pattern(kLarge, 2), last(1);
    if (node.rank == 0) {
      node.send(1, message(1, 0), small);
      node.send(1, message(2, 0), large);
      node.send(1, message(3, 0), last);
      return node.wait_ok(3);
    }
    node.recv(0, message(3, 0), last);
    node.wait_ok(1);  // although the two other messages were sent before it
    std::vector<std::byte> small_in(100), large_in(kLarge);
    node.recv(0, message(1, 0), small_in);
    node.recv(0, message(2, 0), large_in);
    node.wait_ok(2);
    EXPECT_EQ(small_in, small);
    EXPECT_EQ(large_in, large);
  });
}

TEST_P(TransportSuite, RanksThatDisagreeAboutAMessageGetAnError) {
  World world(GetParam(), 2);
  world.run([](Node& node) {
    // Another size, another digest, and the same for messages that use rendezvous.
    struct Case {
      std::size_t sent, expected;
      uint64_t digest_sent, digest_expected;
    };
    const Case cases[] = {{8, 16, 5, 5}, {8, 8, 5, 6}, {kLarge, kLarge + 1, 5, 5}, {kLarge, kLarge, 5, 6}};
    uint64_t sequence = 0;
    for (const Case& c : cases) {
      std::vector<std::byte> bytes(node.rank == 0 ? c.sent : c.expected, std::byte{7});
      if (node.rank == 0) {
        node.send(1, message(0, sequence, c.digest_sent), bytes);
        const std::vector<Completion> done = node.wait(1);
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status.code(), c.sent == kLarge ? Code::kMismatch : Code::kOk);
      } else {
        node.recv(0, message(0, sequence, c.digest_expected), bytes);
        const std::vector<Completion> done = node.wait(1);
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status.code(), Code::kMismatch);
        EXPECT_EQ(done[0].status.peer(), 0);
        EXPECT_EQ(done[0].found.digest, c.digest_sent);
        EXPECT_EQ(done[0].nbytes, c.sent);
        EXPECT_EQ(bytes, std::vector<std::byte>(c.expected, std::byte{7})) << "nothing of it may be stored";
      }
      // The connection is still usable.
      uint64_t value = 42;
      if (node.rank == 0) {
        node.send(1, message(1, sequence), std::as_bytes(std::span(&value, 1)));
      } else {
        value = 0;
        node.recv(0, message(1, sequence), std::as_writable_bytes(std::span(&value, 1)));
      }
      node.wait_ok(1);
      EXPECT_EQ(value, 42U);
      ++sequence;
    }
  });
}

TEST_P(TransportSuite, ADeadPeerFailsEverythingPostedAndNamesIt) {
  World world(GetParam(), 3);
  world.run([](Node& node) {
    std::vector<std::byte> one(1), other(1), large(kLarge), more(kLarge);
    if (node.rank == 2) {
      node.recv(0, message(9, 0), one);
      node.recv(1, message(9, 0), other);
      node.wait_ok(2);
      return node.die();
    }
    node.recv(2, message(0, 0), one, 1);
    node.recv(2, message(0, 1), large, 2);
    node.send(2, message(1, 0), more, 3);
    node.send(2, message(9, 0), other, 0);
    std::vector<Completion> done = node.wait(4);
    ASSERT_EQ(done.size(), 4U);
    EXPECT_TRUE(done[0].status.is_ok());
    for (std::size_t i = 1; i < 4; ++i) {
      EXPECT_EQ(done[i].status.code(), Code::kPeerFailure) << done[i].status.to_string();
      EXPECT_EQ(done[i].status.peer(), 2);
    }
    node.recv(2, message(0, 2), one);
    done = node.wait(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status.code(), Code::kPeerFailure) << "a later post fails like the earlier ones";
    // The survivors are still connected to each other.
    node.recv(1 - node.rank, message(0, 0), one);
    node.send(1 - node.rank, message(0, 0), other);
    node.wait_ok(2);
  });
}

TEST_P(TransportSuite, AGoodbyeIsDistinguishedFromADeathAndComesAfterWhatWasSent) {
  World world(GetParam(), 2);
  world.run([](Node& node) {
    std::vector<std::byte> small = pattern(1000, 3), large = pattern(kLarge, 4);
    if (node.rank == 1) {
      node.send(0, message(0, 0), small);
      node.send(0, message(0, 1), large);
      node.transport->shutdown(Deadline::after(kWaitLimit));
      node.wait_ok(2);
      node.recv(0, message(0, 0), small);
      const std::vector<Completion> done = node.wait(1);
      ASSERT_EQ(done.size(), 1U);
      EXPECT_EQ(done[0].status.code(), Code::kAborted) << "after its own shutdown nothing can be posted";
      return;
    }
    std::vector<std::byte> small_in(small.size()), large_in(large.size()), never(1);
    node.recv(1, message(0, 0), small_in, 0);
    node.recv(1, message(0, 1), large_in, 1);
    node.recv(1, message(0, 2), never, 2);
    const std::vector<Completion> done = node.wait(3);
    ASSERT_EQ(done.size(), 3U);
    EXPECT_TRUE(done[0].status.is_ok());
    EXPECT_TRUE(done[1].status.is_ok());
    EXPECT_EQ(small_in, small);
    EXPECT_EQ(large_in, large);
    EXPECT_EQ(done[2].status.code(), Code::kPeerExited) << done[2].status.to_string();
    EXPECT_EQ(done[2].status.peer(), 1);
  });
  Node& zero = world.node(0);
  std::byte never{};
  for (uint64_t sequence = 3; sequence < 6;
       ++sequence) {  // in later rounds the end of the connection has already been seen
    zero.transport->poll();
    zero.recv(1, message(0, sequence), {&never, 1});
    const std::vector<Completion> done = zero.wait(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status.code(), Code::kPeerExited) << done[0].status.to_string();
  }
}

TEST_P(TransportSuite, AWaitEndsAtItsDeadlineAndCostsNextToNothing) {
  World world(GetParam(), 2);
  Node& node = world.node(0);
  std::byte never{};
  node.recv(1, message(0, 0), {&never, 1});
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  const double before = used();
  const TimePoint began = std::chrono::steady_clock::now();
  EXPECT_EQ(node.wait_until(Deadline::after(1.0)), WaitEnd::kTimeout);
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  EXPECT_GE(waited, 1.0);
  EXPECT_LT(waited, 5.0);
  EXPECT_LT(used() - before, 0.05) << "seconds of CPU in one second of waiting";
}

TEST_P(TransportSuite, ACancelledReceiveNoLongerNeedsItsMemory) {
  World world(GetParam(), 2);
  Node& zero = world.node(0);
  auto small = std::make_unique<std::vector<std::byte>>(1000);
  zero.recv(1, message(0, 0), *small);
  EXPECT_TRUE(zero.transport->cancel(&zero.queue, Status(Code::kTimeout, "too late")));
  small.reset();
  // Nothing of the cancelled message has been received yet, so the connection is kept, and later
  // messages overtake the unwanted one.
  world.run([](Node& node) {
    std::vector<std::byte> unwanted = pattern(1000, 1), wanted = pattern(1000, 2), in(1000);
    if (node.rank == 1) {
      node.send(0, message(0, 0), unwanted);
      node.send(0, message(0, 1), wanted);
      return node.wait_ok(2);
    }
    node.recv(1, message(0, 1), in);
    node.wait_ok(1);
    EXPECT_EQ(in, wanted);
    EXPECT_TRUE(node.queue.empty());
  });
}

TEST_P(TransportSuite, CancellingAMessageOnItsWayFreesItsMemoryAndNothingElseSuffers) {
  for (const Rank quitter : {0, 1}) {
    World world(GetParam(), 2);
    constexpr std::size_t kHuge = 64 * 1024 * 1024;  // more than all buffers between the two ranks hold
    std::vector<std::byte> out = pattern(kHuge, 1), in(kHuge);
    const std::vector<std::byte> other = pattern(kHuge / 4, 2);
    std::vector<std::byte> other_in(other.size());
    Node& zero = world.node(0);
    Node& one = world.node(1);
    CompletionQueue kept_at_zero, kept_at_one;
    one.recv(0, message(0, 0), in, 1);
    one.transport->post_recv(
        0,
        {.id = message(1, 0), .payload = other_in, .nbytes = other_in.size(), .completions = &kept_at_one});
    zero.send(1, message(0, 0), out, 1);
    zero.transport->post_send(1, {.id = message(1, 0), .payload = other, .completions = &kept_at_zero});
    for (int i = 0; i < 3; ++i) {
      zero.transport->poll();
      one.transport->poll();
    }
    Node& quits = quitter == 0 ? zero : one;
    Node& informed = quitter == 0 ? one : zero;
    std::vector<std::byte>& memory = quitter == 0 ? out : in;
    EXPECT_FALSE(quits.transport->cancel(&quits.queue, Status(Code::kInterrupted, "Ctrl-C")));
    std::fill(memory.begin(), memory.end(), std::byte{0xDD});
    world.run([&](Node& node) {
      if (node.rank == informed.rank) {
        const std::vector<Completion> done = node.wait(1);
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status.code(), Code::kPeerInterrupted) << done[0].status.to_string();
        EXPECT_EQ(done[0].status.peer(), quitter);
      }
      const std::vector<Completion> kept = node.wait_on(node.rank == 0 ? kept_at_zero : kept_at_one, 1);
      ASSERT_EQ(kept.size(), 1U);
      EXPECT_TRUE(kept[0].status.is_ok()) << kept[0].status.to_string();
      std::vector<std::byte> bytes = node.rank == 0 ? pattern(kLarge, 3) : std::vector<std::byte>(kLarge);
      node.rank == 0 ? node.send(1, message(0, 1), bytes) : node.recv(0, message(0, 1), bytes);
      node.wait_ok(1);
      EXPECT_EQ(bytes, pattern(kLarge, 3));
    });
    EXPECT_EQ(other_in, other);
    EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0xDD}; }));
    EXPECT_TRUE(quits.queue.empty()) << "what is cancelled does not complete";
  }
}

TEST_P(TransportSuite, ACollectiveThatIsGivenUpDoesNotDisturbTheNext) {
  World world(GetParam(), 2);
  std::atomic<int> given_up{0};
  world.run([&](Node& node) {
    const Rank peer = 1 - node.rank;
    const auto id = [](uint64_t sequence, uint32_t index) {
      return MessageId{.stream = {.group = 1, .klass = StreamClass::kCollective, .tag = 0},
                       .sequence = sequence,
                       .index = index,
                       .digest = 1};
    };
    for (uint64_t sequence = 1; sequence < 40; sequence += 2) {
      std::vector<std::byte> small(100), large(8 * kLarge), small_in(100), large_in(8 * kLarge);
      node.send(peer, id(sequence, 0), small);
      node.send(peer, id(sequence, 1), large);
      // The two ranks wait for different messages: a message that one rank has posted and cancelled
      // may never have reached the other.
      if (sequence % 3 != 0) node.recv(peer, id(sequence, 1), large_in);
      if (sequence % 3 == 1) node.recv(peer, id(sequence, 0), small_in);
      for (uint64_t i = 0; i < sequence % 7; ++i) node.transport->poll();
      static_cast<void>(node.transport->cancel(&node.queue, Status(Code::kTimeout, "too late")));
      node.transport->discard(1, sequence);
      for (std::vector<std::byte>* memory : {&small, &large, &small_in, &large_in}) {
        std::fill(memory->begin(), memory->end(), std::byte{0xDD});
      }
      Completion late;
      while (node.queue.take(late)) {
      }
      const std::vector<std::byte> out = pattern(kLarge, sequence);
      std::vector<std::byte> in(kLarge);
      node.recv(peer, id(sequence + 1, 0), in);
      node.send(peer, id(sequence + 1, 0), out);
      node.wait_ok(2);
      EXPECT_EQ(in, out);
      EXPECT_EQ(large_in, std::vector<std::byte>(8 * kLarge, std::byte{0xDD}));
    }
    ++given_up;
  });
  EXPECT_EQ(given_up, 2);
}

TEST_P(TransportSuite, ControlSocketsConnectEveryPairOnce) {
  constexpr Rank kRanks = 4;
  World world(GetParam(), kRanks);
  std::vector<std::vector<ByteStream>> sockets;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    sockets.push_back(world.node(rank).transport->take_control_sockets());
    ASSERT_EQ(sockets.back().size(), std::size_t{kRanks});
    const std::vector<ByteStream> again = world.node(rank).transport->take_control_sockets();
    EXPECT_TRUE(
        std::none_of(again.begin(), again.end(), [](const ByteStream& each) { return each.valid(); }));
  }
  const auto at = [&](Rank from, Rank to) {
    return sockets[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)].fd();
  };
  for (Rank from = 0; from < kRanks; ++from) {
    EXPECT_LT(at(from, from), 0);
    for (Rank to = 0; to < kRanks; ++to) {
      const char byte = static_cast<char>(10 * from + to);
      if (from != to) {
        EXPECT_EQ(::send(at(from, to), &byte, 1, MSG_NOSIGNAL), 1);
      }
    }
  }
  for (Rank from = 0; from < kRanks; ++from) {
    for (Rank to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      char byte = 0;
      pollfd readable{at(to, from), POLLIN, 0};
      ASSERT_EQ(::poll(&readable, 1, static_cast<int>(kWaitLimit * 1000)), 1);
      EXPECT_EQ(::recv(at(to, from), &byte, 1, 0), 1);
      EXPECT_EQ(byte, 10 * from + to);
    }
  }
  world.node(3).die();
  const char byte = 0;
  EXPECT_EQ(::send(at(0, 3), &byte, 1, MSG_NOSIGNAL), 1) << "they live without their transport";
}

TEST_P(TransportSuite, ControlSocketsThatWereNotTakenEndWithTheTransport) {
  World world(GetParam(), 2);
  const std::vector<ByteStream> sockets = world.node(0).transport->take_control_sockets();
  world.node(1).die();
  pollfd readable{sockets[1].fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, static_cast<int>(kWaitLimit * 1000)), 1);
  char byte = 0;
  EXPECT_EQ(::recv(sockets[1].fd(), &byte, 1, 0), 0);
}

TEST_P(TransportSuite, AForkedChildClosesEverythingAndTheParentGoesOn) {
  constexpr std::ptrdiff_t kRanks = 3, kOfAReactor = 2;
  const std::ptrdiff_t before = open_descriptors();
  World world(GetParam(), kRanks);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (Rank rank = 0; rank < kRanks; ++rank) world.node(rank).transport->close_in_child();
    ::_exit(open_descriptors() == before + kRanks * kOfAReactor ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::vector<std::byte> out = pattern(kLarge, 1), in(kLarge);
  world.node(0).send(1, message(0, 0), out);
  world.node(1).recv(0, message(0, 0), in);
  for (bool arrived = false; !arrived; arrived = !world.node(1).queue.empty()) {
    for (const Rank rank : {0, 1}) world.node(rank).transport->poll();
  }
  EXPECT_EQ(in, out);
}

TEST_P(TransportSuite, AbortEndsTheWaitOfAnotherThread) {
  World world(GetParam(), 2);
  std::byte never{};
  Node& node = world.node(0);
  node.recv(1, message(0, 0), {&never, 1});
  std::thread other([&] { node.transport->abort(Status(Code::kInterrupted, "enough")); });
  const std::vector<Completion> done = node.wait(1);
  other.join();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status.code(), Code::kInterrupted);
  EXPECT_EQ(done[0].status.message(), "enough");
  node.recv(1, message(0, 1), {&never, 1});
  EXPECT_EQ(node.wait(1)[0].status.code(), Code::kInterrupted) << "later posts end likewise";
}

TEST_P(TransportSuite, APostToAnInvalidPeerIsAnInvalidArgument) {
  World world(GetParam(), 2);
  Node& node = world.node(0);
  std::byte byte{};
  uint64_t sequence = 0;
  for (const Rank peer : {0, 2, -1}) {
    node.send(peer, message(0, sequence), {&byte, 1});
    node.recv(peer, message(0, sequence), {&byte, 1});
    for (const Completion& done : node.wait(2)) EXPECT_EQ(done.status.code(), Code::kInvalidArgument);
    ++sequence;
  }
}

TEST_P(TransportSuite, NothingIsLeftOpen) {
  const std::ptrdiff_t before = open_descriptors();
  {
    World world(GetParam(), 4);
    EXPECT_GT(open_descriptors(), before);
    world.run([](Node& node) {
      if (node.rank > 0) node.transport->shutdown(Deadline::after(kWaitLimit));
    });
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(TransportSuite, AWorldOfOneNeedsNoPeer) {
  World world(GetParam(), 1);
  EXPECT_EQ(world.node(0).wait_until(Deadline::after(0.01)), WaitEnd::kTimeout);
}

}  // namespace pc::testing
