// Injected faults happen as requested.
#include "transport/faulty/faulty.h"

#include <gtest/gtest.h>

#include "conformance/world.h"
#include "transport/inproc/inproc.h"

namespace pc::testing {
namespace {

const TransportKind kFaulty{"faulty", [](Rank size, const LinkLimits& limits) {
                              const std::shared_ptr<InprocHub> hub = InprocHub::create(size, limits);
                              std::vector<std::unique_ptr<Transport>> all;
                              for (Rank rank = 0; rank < size; ++rank) {
                                all.push_back(std::make_unique<FaultyTransport>(hub->make_transport(rank)));
                              }
                              return all;
                            }};

FaultyTransport& faults(Node& node) { return static_cast<FaultyTransport&>(*node.transport); }

TEST(FaultyTransport, ASilentRankIsAliveAndSendsWhenReleased) {
  World world(kFaulty, 2);
  Node &zero = world.node(0), &one = world.node(1);
  std::byte out{42}, in{};
  faults(zero).hold(1);
  zero.send(1, message(0, 0), {&out, 1});
  one.recv(0, message(0, 0), {&in, 1});
  EXPECT_EQ(one.wait_until(Deadline::after(0.02)), WaitEnd::kTimeout);
  faults(zero).release(1);
  one.wait_ok(1);
  EXPECT_EQ(in, out);
}

TEST(FaultyTransport, CancelAndAbortReachWhatIsHeld) {
  World world(kFaulty, 2);
  Node& zero = world.node(0);
  CompletionQueue kept;
  std::byte out{42};
  faults(zero).hold(1);
  zero.send(1, message(0, 0), {&out, 1});
  zero.transport->post_send(
      1, {.id = message(0, 1), .payload = std::span(&out, 1), .completions = &kept, .token = 7});
  EXPECT_TRUE(zero.transport->cancel(&zero.queue, Status(Code::kTimeout, "too late")));
  zero.transport->abort(Status(Code::kInterrupted, "enough"));
  EXPECT_TRUE(zero.queue.empty());
  const std::vector<Completion> done = zero.wait_on(kept, 1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].token, 7U);
  EXPECT_EQ(done[0].status.code(), Code::kInterrupted);
}

TEST(FaultyTransport, DiesAtTheOrderedPost) {
  World world(kFaulty, 2);
  Node &zero = world.node(0), &one = world.node(1);
  std::byte out{42}, in[2] = {};
  faults(zero).die_after(1);
  one.recv(0, message(0, 0), {&in[0], 1}, 0);
  one.recv(0, message(0, 1), {&in[1], 1}, 1);
  zero.send(1, message(0, 0), {&out, 1}, 0);
  zero.send(1, message(0, 1), {&out, 1}, 1);
  const std::vector<Completion> here = zero.wait(2), there = one.wait(2);
  ASSERT_EQ(here.size(), 2U);
  ASSERT_EQ(there.size(), 2U);
  EXPECT_TRUE(here[0].status.is_ok());
  EXPECT_EQ(here[1].status.code(), Code::kAborted);
  EXPECT_TRUE(there[0].status.is_ok());
  EXPECT_EQ(there[1].status.code(), Code::kPeerFailure);
  EXPECT_EQ(there[1].status.peer(), 0);
}

}  // namespace
}  // namespace pc::testing
