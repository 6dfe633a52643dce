// Shared memory beyond the contract of every transport: the short path, sleeping and waking, and a
// local peer that writes invalid data.
#include "transport/shm/shm.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/world.h"
#include "shm/local_peers_thread.h"
#include "transport/inproc/inproc.h"
#include "transport/shm/channel.h"

namespace pc {
namespace {

using testing::kWaitLimit;

MessageId message(uint64_t sequence, uint64_t digest = 5) {
  return {{1, StreamClass::kPointToPoint, 2}, sequence, 0, digest};
}

struct Side {
  std::unique_ptr<LocalPeers> local_peers;
  std::unique_ptr<ShmWakeup> wakeup;
  std::unique_ptr<Transport> transport;
  Reactor reactor{false};
  CompletionQueue queue;

  void send(const std::vector<std::byte>& bytes, uint64_t sequence) {
    transport->post_send(peer, {.id = message(sequence), .payload = bytes, .completions = &queue});
  }
  void recv(std::vector<std::byte>& bytes, uint64_t sequence) {
    transport->post_recv(
        peer, {.id = message(sequence), .payload = bytes, .nbytes = bytes.size(), .completions = &queue});
  }
  bool send_at_once(const std::vector<std::byte>& bytes, uint64_t sequence, uint64_t digest = 5) {
    return transport->send_at_once(peer, {.id = message(sequence, digest), .payload = bytes});
  }
  bool recv_at_once(std::vector<std::byte>& bytes, uint64_t sequence) {
    return transport->recv_at_once(peer, {.id = message(sequence), .payload = bytes, .nbytes = bytes.size()});
  }
  Completion wait() {
    Completion next;
    while (!queue.take(next)) {
      if (reactor.wait(queue, {.deadline = Deadline::after(kWaitLimit)}) != WaitEnd::kReady) {
        ADD_FAILURE() << "nothing completes";
        break;
      }
    }
    return next;
  }
  Rank peer = 0;
};

class ShmTransportTest : public ::testing::Test {
 protected:
  ShmTransportTest() {
    const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
    const std::shared_ptr<ThreadHost> host = ThreadHost::create(2).value();
    for (Rank rank : {0, 1}) {
      Side& side = sides[static_cast<std::size_t>(rank)];
      side.peer = 1 - rank;
      side.local_peers = host->local_peers_of(rank);
      side.wakeup = ShmWakeup::create(*side.local_peers, rank, 2).value();
      side.transport = make_shm_transport({.rank = rank, .size = 2}, hub->make_transport(rank),
                                          *side.local_peers, *side.wakeup)
                           .value();
    }
    both([](Side& side) {
      const Status connected = side.transport->connect({"", ""}, {.deadline = Deadline::after(kWaitLimit)});
      EXPECT_TRUE(connected.is_ok()) << connected.to_string();
      EXPECT_TRUE(side.reactor.add(side.transport.get()).is_ok());
    });
  }
  ~ShmTransportTest() override {
    for (Side& side : sides) side.reactor.remove(side.transport.get());
  }
  void both(const std::function<void(Side&)>& body) {
    std::thread other([&] { body(sides[1]); });
    body(sides[0]);
    other.join();
  }
  void begin() {  // the channels exist after one message each way
    both([](Side& side) {
      std::vector<std::byte> out(1), in(1);
      side.recv(in, 0);
      side.send(out, 0);
      EXPECT_TRUE(side.wait().status.is_ok());
      EXPECT_TRUE(side.wait().status.is_ok());
    });
  }
  // The channel in which rank 0 writes for rank 1.
  Channel& channel() {
    const uint64_t offset = sides[0].wakeup->own_header().channels[1].load();
    return *reinterpret_cast<Channel*>(sides[1].local_peers->map(0, offset, sizeof(Channel)).value().data());
  }
  std::array<Side, 2> sides;
};

TEST_F(ShmTransportTest, a_small_message_is_sent_and_received_at_once_whatever_its_size) {
  begin();
  uint64_t sequence = 1;
  for (const std::size_t nbytes : {0, 1, 8, 87, 88, 89, 1000, 8192, 8193, 20000, 65536}) {
    const std::vector<std::byte> out = pattern(nbytes, nbytes);
    std::vector<std::byte> in(nbytes);
    both([&](Side& side) {
      if (side.peer == 1) {
        EXPECT_TRUE(side.send_at_once(out, sequence)) << nbytes;
      } else {
        // on a slow machine the message may take longer than a receive stays awake
        while (!side.recv_at_once(in, sequence)) {
        }
      }
    });
    EXPECT_EQ(in, out) << nbytes << " bytes";
    ++sequence;
  }
}

TEST_F(ShmTransportTest, any_but_the_next_message_takes_the_general_path_and_nothing_is_lost) {
  begin();
  const std::vector<std::byte> first = pattern(100, 1), second = pattern(100, 2);
  std::vector<std::byte> in(100), wrong(101);
  ASSERT_TRUE(sides[0].send_at_once(first, 1));
  ASSERT_TRUE(sides[0].send_at_once(second, 2));
  EXPECT_FALSE(sides[1].recv_at_once(in, 2)) << "another message is next";
  EXPECT_FALSE(sides[1].recv_at_once(wrong, 1)) << "another size";
  sides[1].recv(in, 2);
  EXPECT_TRUE(sides[1].wait().status.is_ok());
  EXPECT_EQ(in, second);
  EXPECT_FALSE(sides[1].recv_at_once(in, 1)) << "it is kept, not next";
  sides[1].recv(in, 1);
  EXPECT_TRUE(sides[1].wait().status.is_ok());
  EXPECT_EQ(in, first);
  ASSERT_TRUE(sides[0].send_at_once(first, 3, 6));
  EXPECT_FALSE(sides[1].recv_at_once(in, 3)) << "another fingerprint";
  sides[1].recv(in, 3);
  EXPECT_EQ(sides[1].wait().status.code(), Code::kMismatch);
}

TEST_F(ShmTransportTest, small_messages_stop_at_the_credit_and_go_on_when_they_are_received) {
  begin();
  const std::vector<std::byte> out = pattern(30000, 1);
  std::vector<std::byte> in(out.size());
  uint64_t sent = 1;
  while (sent < 1000 && sides[0].send_at_once(out, sent)) ++sent;
  EXPECT_GT(sent, 20U);
  EXPECT_LT(sent, 40U);
  for (uint64_t sequence = 1; sequence < sent; ++sequence) {
    sides[1].recv(in, sequence);
    EXPECT_TRUE(sides[1].wait().status.is_ok());
    EXPECT_EQ(in, out);
  }
  sides[0].transport->poll();
  EXPECT_TRUE(sides[0].send_at_once(out, sent));
}

TEST_F(ShmTransportTest, a_sleeping_rank_is_notified_and_a_polling_rank_is_not) {
  begin();
  std::vector<std::byte> in(1), out(1);
  ASSERT_TRUE(sides[0].send_at_once(out, 1));
  EXPECT_FALSE(sides[1].local_peers->clear_notification()) << "no thread sleeps";
  while (!sides[1].recv_at_once(in, 1)) {
  }
  EXPECT_TRUE(sides[1].transport->fall_asleep());
  ASSERT_TRUE(sides[0].send_at_once(out, 2));
  EXPECT_FALSE(sides[1].local_peers->clear_notification()) << "the sleeping thread waits for nothing here";
  sides[1].recv(in, 3);  // as if posted by another thread
  ASSERT_TRUE(sides[0].send_at_once(out, 3));
  ASSERT_TRUE(sides[0].send_at_once(out, 4));
  EXPECT_TRUE(sides[1].local_peers->clear_notification());
  sides[1].transport->wake_up();
  EXPECT_FALSE(sides[1].transport->fall_asleep()) << "something has come";
  sides[1].transport->wake_up();
  EXPECT_TRUE(sides[1].wait().status.is_ok());
}

TEST_F(ShmTransportTest, a_local_peer_that_writes_nonsense_is_an_error_on_both_sides) {
  begin();
  std::vector<std::byte> in(1), out(1);
  sides[0].recv(in, 1);
  sides[1].recv(in, 1);
  ChannelSlot& slot = channel().slots[1];
  std::fill(std::begin(slot.bytes), std::end(slot.bytes), std::byte{0xEE});
  slot.stamp.store(2);
  const Completion there = sides[1].wait();
  EXPECT_EQ(there.status.code(), Code::kPeerFailure) << there.status.to_string();
  EXPECT_EQ(there.status.peer(), 0);
  const Completion here = sides[0].wait();
  EXPECT_EQ(here.status.code(), Code::kPeerFailure) << here.status.to_string();
  EXPECT_EQ(here.status.peer(), 1);
}

class ShmWrongPlace : public ShmTransportTest, public ::testing::WithParamInterface<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Offsets, ShmWrongPlace, ::testing::Values(1, 4096, uint64_t{1} << 40));

TEST_P(ShmWrongPlace, a_place_where_no_channel_can_be_is_an_error) {
  sides[0].wakeup->own_header().channels[1].store(GetParam());
  std::vector<std::byte> in(1);
  sides[1].recv(in, 1);
  const Completion done = sides[1].wait();
  EXPECT_TRUE(done.status.code() == Code::kPeerFailure || done.status.code() == Code::kMismatch);
  EXPECT_EQ(done.status.peer(), 0) << done.status.to_string();
}

TEST_F(ShmTransportTest, a_local_peer_that_says_it_took_more_than_there_was_is_an_error) {
  begin();
  const uint64_t offset = sides[1].wakeup->own_header().channels[0].load();
  Channel& theirs =
      *reinterpret_cast<Channel*>(sides[0].local_peers->map(1, offset, sizeof(Channel)).value().data());
  theirs.bytes_taken.store(uint64_t{1} << 62);
  const std::vector<std::byte> out(100);
  EXPECT_FALSE(sides[0].send_at_once(out, 1));
  sides[0].send(out, 1);
  EXPECT_EQ(sides[0].wait().status.code(), Code::kPeerFailure);
}

}  // namespace
}  // namespace pc
