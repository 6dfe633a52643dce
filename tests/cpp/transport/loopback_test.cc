// The contract of the loopback transport: messages of a rank to itself, in order and in either
// order of posting. All others use the underlying transport.
#include "transport/loopback.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "transport/inproc/inproc.h"
#include "transport/reactor.h"

namespace pc::testing {
namespace {

constexpr Rank kMe = 1;

MessageId message(uint64_t sequence, uint32_t tag = 0) {
  return {{7, StreamClass::kPointToPoint, tag}, sequence, 0, 42};
}

// Sends and receives of one rank. Their memory is not moved.
class Loopback : public ::testing::Test {
 protected:
  void send(uint64_t sequence, std::vector<std::byte>& data, CompletionQueue& queue, Rank peer = kMe) {
    transport_->post_send(peer, {message(sequence), std::span<const std::byte>(data), &queue, 0});
  }
  void recv(uint64_t sequence, std::vector<std::byte>& data, CompletionQueue& queue, Rank peer = kMe) {
    transport_->post_recv(peer, {message(sequence), data, data.size(), nullptr, &queue, 0});
  }
  static Status end(CompletionQueue& queue) {
    Completion completion;
    return queue.take(completion) ? completion.status : Status(Code::kTimeout, "nothing has completed");
  }
  std::unique_ptr<Transport> transport_ = make_loopback_transport(kMe, nullptr);
};

TEST_F(Loopback, a_message_arrives_whichever_side_is_posted_first_and_whatever_its_size) {
  for (const std::size_t nbytes :
       {std::size_t{0}, std::size_t{1}, kEagerBytes, kEagerBytes + 1, std::size_t{3'000'000}}) {
    for (const bool send_first : {true, false}) {
      std::vector<std::byte> from(nbytes), to(nbytes);
      for (std::size_t i = 0; i < nbytes; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
      const uint64_t sequence = nbytes * 2 + (send_first ? 1 : 2);
      CompletionQueue sent, received;
      if (send_first) send(sequence, from, sent);
      recv(sequence, to, received);
      if (!send_first) send(sequence, from, sent);
      EXPECT_TRUE(end(received).is_ok()) << nbytes << send_first;
      EXPECT_TRUE(end(sent).is_ok()) << nbytes << send_first;
      EXPECT_TRUE(from == to) << nbytes << send_first;
    }
  }
}

TEST_F(Loopback, a_receive_that_is_withdrawn_leaves_the_message_to_the_next) {
  std::vector<std::byte> from(8, std::byte{5}), to(8);
  CompletionQueue sent, withdrawn, received;
  recv(1, to, withdrawn);
  EXPECT_TRUE(transport_->cancel(&withdrawn, Status(Code::kTimeout, "no time left")));
  send(1, from, sent);
  recv(1, to, received);
  EXPECT_TRUE(end(received).is_ok());
  EXPECT_EQ(end(withdrawn).code(), Code::kTimeout);  // moves nothing
  EXPECT_TRUE(from == to);
}

TEST_F(Loopback, another_size_is_a_mismatch_on_both_sides) {
  std::vector<std::byte> from(kEagerBytes + 1), to(8);
  CompletionQueue sent, received;
  send(1, from, sent);
  recv(1, to, received);
  EXPECT_EQ(end(received).code(), Code::kMismatch);
  EXPECT_EQ(end(sent).code(), Code::kMismatch);
}

TEST_F(Loopback, an_abort_ends_what_is_posted_and_what_follows) {
  std::vector<std::byte> to(8);
  CompletionQueue before, after;
  recv(1, to, before);
  transport_->abort(Status(Code::kAborted, "closed"));
  recv(2, to, after);
  EXPECT_EQ(end(before).code(), Code::kAborted);
  EXPECT_EQ(end(after).code(), Code::kAborted);
}

TEST(LoopbackBesideOthers, messages_to_other_ranks_use_the_transport_beneath) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
  const std::unique_ptr<Transport> zero = hub->make_transport(0), one = hub->make_transport(1);
  const std::unique_ptr<Transport> mine = make_loopback_transport(1, one.get());
  std::vector<std::byte> from(100, std::byte{3}), to(100);
  CompletionQueue sent, received;
  mine->post_send(0, {message(1), std::span<const std::byte>(from), &sent, 0});
  zero->post_recv(1, {message(1), to, to.size(), nullptr, &received, 0});
  Completion completion;
  ASSERT_TRUE(received.take(completion));
  EXPECT_TRUE(completion.status.is_ok());
  EXPECT_TRUE(from == to);
  EXPECT_EQ(mine->name(), one->name());
  EXPECT_EQ(mine->path_to(1), "loopback");
}

}  // namespace
}  // namespace pc::testing
