// Rounds that are exchanged with other hosts, which the test emulates.
#include "engine/shm/inter_domain_exchange.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "engine/shm/member.h"
#include "engine/shm/shared_run.h"

namespace pc::shm {
namespace {

// Two hosts of two ranks. An exchange completes when it is first polled.
class PromptExchange final : public InterDomainExchange {
 public:
  uint32_t begun = 0, taken = 0;

  bool has_capacity() const override { return begun - taken < 2; }
  bool is_active() const override { return begun != taken; }
  void exchange(uint32_t, std::span<std::byte>) override { ++begun; }
  Result<bool> take(uint32_t) override { return begun != taken++; }
  void end(const Status&) override { taken = begun; }
  std::span<const Rank> parts_of(Rank member) const override {
    return parts_[static_cast<std::size_t>(member)];
  }
  std::size_t own_part() const override { return 0; }
  Rank waits_for() const override { return -1; }

 private:
  const std::array<std::array<Rank, 2>, 2> parts_ = {{{0, 2}, {1, 3}}};  // by domain
};

// The other hosts may need the next steps of this rank's plans, and do not know its local peer.
TEST(InterDomainExchange, rounds_go_on_while_a_local_peer_is_late) {
  const std::shared_ptr<ThreadHost> memory = ThreadHost::create(2).value();
  Member early(*memory, 0, 2), late(*memory, 1, 2);
  for (Member* const member : {&early, &late, &early}) ASSERT_TRUE(member->group.join().is_ok());

  std::vector<float> own(100'000), all(4 * own.size());
  Request request;
  request.collective = Collective::kAllgather;
  request.in = {reinterpret_cast<std::byte*>(own.data()), own.size(), DType::kF32};
  request.out = {reinterpret_cast<std::byte*>(all.data()), all.size(), DType::kF32};
  Launch launch;
  launch.sequence = 1;
  launch.digest = 99;
  launch.size = 2;
  launch.world_ranks = kRanks.data();
  PromptExchange inter_domain;
  Waiter waiter;
  SharedRun run(*early.host, early.group, waiter);
  run.prepare(request, launch, {.slices = 2, .most = 2, .parts = 2}, &inter_domain);
  Scratch scratch;
  run.start(scratch);
  EXPECT_FALSE(run.ended());
  EXPECT_GT(inter_domain.taken, 2U);
  EXPECT_EQ(inter_domain.taken, inter_domain.begun);
  run.end(Status(Code::kAborted, "the test is over"));
}

}  // namespace
}  // namespace pc::shm
