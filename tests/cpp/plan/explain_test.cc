#include <gtest/gtest.h>

#include "plan/builder.h"
#include "plan/worlds.h"

namespace pc {
namespace {

std::string explained(Collective collective, const char* name, Rank rank, Rank size, Rank root = 0,
                      uint32_t split = 1) {
  return "\n" + explain(find_algorithm(collective, name)->build({collective, rank, size, root, split}));
}

TEST(Explain, shows_a_ring_step_by_step) {
  EXPECT_EQ(explained(Collective::kAllreduce, "ring", 2, 4), R"(
rank 2 of 4, ring allreduce, 4 chunks
  0  send        chunk 2 -> rank 3
  1  recv_reduce chunk 1 <- rank 1        holds 1 + 1 of 4
  2  send        chunk 1 -> rank 3
  3  recv_reduce chunk 0 <- rank 1        holds 1 + 2 of 4
  4  send        chunk 0 -> rank 3
  5  recv_reduce chunk 3 <- rank 1        holds 1 + 3 of 4
  6  send        chunk 3 -> rank 3
  7  recv        chunk 2 <- rank 1
  8  send        chunk 2 -> rank 3
  9  recv        chunk 1 <- rank 1
 10  send        chunk 1 -> rank 3
 11  recv        chunk 0 <- rank 1
)");
}

TEST(Explain, shows_scratch_and_what_a_step_waits_for) {
  EXPECT_EQ(explained(Collective::kAllreduce, "recursive_doubling", 1, 3), R"(
rank 1 of 3, recursive_doubling allreduce, 1 chunk, 1 of scratch
  0  send        chunk 0 -> rank 0
  1  recv        chunk 0 into scratch 0 <- rank 0
  2  reduce      chunk 0 from scratch 0   holds 1 + 2 of 3  after step 0
)");
  EXPECT_EQ(explained(Collective::kReduce, "binomial", 2, 4, 0, 3), R"(
rank 2 of 4, binomial reduce, 3 chunks, 2 of scratch
  0  copy        chunk 0 from input into scratch 0
  1  recv_reduce chunk 0 into scratch 0 <- rank 3  holds 1 + 1 of 4
  2  send        chunk 0 from scratch 0 -> rank 0
  3  copy        chunk 1 from input into scratch 1
  4  recv_reduce chunk 1 into scratch 1 <- rank 3  holds 1 + 1 of 4
  5  send        chunk 1 from scratch 1 -> rank 0
  6  copy        chunk 2 from input into scratch 0  after step 2
  7  recv_reduce chunk 2 into scratch 0 <- rank 3  holds 1 + 1 of 4
  8  send        chunk 2 from scratch 0 -> rank 0
)");
}

TEST(Explain, shows_messages_without_data_and_plans_without_steps) {
  EXPECT_EQ(explained(Collective::kBarrier, "dissemination", 0, 2), R"(
rank 0 of 2, dissemination barrier
  0  send        nothing -> rank 1
  1  recv        nothing <- rank 1
)");
  EXPECT_EQ(explained(Collective::kBroadcast, "binomial", 0, 1), R"(
rank 0 of 1, binomial broadcast, 1 chunk, nothing to do
)");
}

TEST(Explain, shows_lanes_where_there_are_several) {
  PlanBuilder builder("test", {Collective::kBroadcast, 0, 2}, 2);
  builder.send(1, {Area::kInput, {0, 2}, {0, 2}});
  builder.lane(1).send(1, output(1));
  EXPECT_EQ(explain(builder.take()), R"(rank 0 of 2, test broadcast, 2 chunks
  0  send        chunks 0..1 from input -> rank 1  lane 0
  1  send        chunk 1 -> rank 1  lane 1
)");
}

}  // namespace
}  // namespace pc
