// What only shared memory can get wrong: memory that is reused while other ranks are behind, calls
// that end in the middle, and local peers that send impossible values.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <random>
#include <vector>

#include "engine/shm/limits.h"
#include "mixture.h"
#include "shm/heap.h"

namespace pc::testing {
namespace {

class SharedMemory : public ::testing::TestWithParam<Rank> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedMemory, ::testing::Values(2, 3, 4, 5),
                         [](const ::testing::TestParamInfo<Rank>& each) {
                           return std::to_string(each.param);
                         });

TEST_P(SharedMemory, calls_of_all_kinds_and_sizes_follow_each_other_exactly) {
  const WorldOptions world = {.over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS};
  const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
    for (uint64_t call = 0; call < 216; ++call) PC_TRY(make_and_check(group, call, count_for(call)));
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Every limit at its minimum and at its maximum, alternating with the usual limits: results are
// exact under every profile.
TEST_P(SharedMemory, calls_are_exact_at_the_ends_of_all_limits) {
  const std::string ranks = std::to_string(GetParam()) + ":";
  for (const bool least : {true, false}) {
    std::string tuning;
    for (const shm::LimitRow& row : shm::limit_table())
      tuning += ranks + std::string(row.name) + "=" + std::to_string(least ? row.least : row.most) + "|";
    const WorldOptions world = {
        .over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS, .tuning = tuning};
    const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
      for (uint64_t call = 0; call < 144; ++call) PC_TRY(make_and_check(group, call, count_for(call)));
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << tuning << "\n" << text_of(outcomes);
  }
}

// Ranks that are not waited for run ahead as far as the protocol allows.
TEST_P(SharedMemory, a_root_that_runs_ahead_overwrites_nothing) {
  const WorldOptions world = {.over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS};
  const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
    for (uint64_t call = 0; call < 400; ++call) {
      const std::size_t count = count_for(call);
      std::vector<float> x = array_of(0, call, count), none;
      if (group.rank() != 0) std::fill(x.begin(), x.end(), -1.0F);
      Request request;
      request.collective = Collective::kBroadcast;
      request.out = view_of(x, 0, count);
      if (group.rank() == 0) request.in = request.out;
      PC_TRY(group.run(request));
      for (std::size_t i = 0; i < count; ++i)
        PC_TRY(expect(x, i, value(0, call, i), call, Collective::kBroadcast));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// A rank skips a call, or drops one in the middle: the other ranks abandon it at any point. The
// calls that follow are right.
TEST_P(SharedMemory, after_calls_that_are_given_up_anywhere_the_next_ones_are_exact) {
  const WorldOptions world = {
      .over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS, .log_fd = -1};
  const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
    std::mt19937 all(7);  // chooses the same on all ranks
    std::mt19937 own(static_cast<unsigned>(group.rank()) + 1);
    for (uint64_t call = 0; call < 60; ++call) {
      const Rank odd = static_cast<Rank>(all() % static_cast<uint64_t>(group.size()));
      const std::size_t count = count_for(all());
      if (group.rank() == odd && call % 2 == 0) {
        std::vector<float> x = array_of(odd, call, count);
        const Request request = request_of(Collective::kAllreduce, x, x, 0);
        Result<WorkPtr> work = group.launch(request);
        for (auto steps = own() % 4; work.is_ok() && steps > 0; --steps) work.value()->progress();
      } else if (group.rank() != odd) {
        std::vector<float> x = array_of(group.rank(), call, count);
        const Request request = request_of(Collective::kAllreduce, x, x, 0);
        const Status ended = group.run(request);
        if (ended.is_ok()) {
          for (std::size_t i = 0; i < count; ++i) {
            float wanted = 0;
            for (Rank r = 0; r < group.size(); ++r) wanted += value(r, call, i);
            PC_TRY(expect(x, i, wanted, call, Collective::kAllreduce));
          }
        }
      }
      PC_TRY(group.resync());
      for (uint64_t next = 0; next < 9; ++next)
        PC_TRY(make_and_check(group, call * 9 + next, count_for(call + next)));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// The root has filled its ring. The other ranks are informed that the call is over before they make
// it, and so never enter it.
Status broadcast_in_vain(Communicator& group, std::vector<float>& x, std::shared_future<void> is_over) {
  Request request = request_of(Collective::kBroadcast, x, x, 0);
  if (group.rank() != 0) request.in = {};
  if (group.rank() != 0) is_over.wait();  // the root returns when it has the reports of the other ranks
  const Status ended = group.run(request, group.rank() == 0 ? 0.2 : kManyCallsS);
  return ended.is_ok() ? Status(Code::kInternal, "it was not in vain") : Status::ok();
}

TEST_P(SharedMemory, a_broadcast_that_timed_out_at_its_root_leaves_room_for_the_next_calls) {
  constexpr double kSoon = 20;
  for (const std::size_t next : {std::size_t{2'000'000}, std::size_t{100}}) {
    std::promise<void> over;
    const std::shared_future<void> is_over = over.get_future().share();
    const WorldOptions world = {
        .over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS, .log_fd = -1};
    const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
      PC_TRY(make_and_check(group, 0, 10));
      std::vector<float> x = array_of(0, 1, 2'000'000);
      const Status in_vain = broadcast_in_vain(group, x, is_over);
      if (group.rank() == 0) over.set_value();
      PC_TRY(in_vain);
      for (const uint64_t kind : {1, 0}) PC_TRY(make_and_check(group, kind, next, kSoon));
      return make_and_check(group, 1, 2'000'000, kSoon);
    });
    EXPECT_TRUE(all_ok(outcomes)) << next << "\n" << text_of(outcomes);
  }
}

TEST_P(SharedMemory, groups_that_share_ranks_do_not_disturb_each_other) {
  const WorldOptions world = {.over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS};
  const Outcomes outcomes = run_world(world, [](Runtime& runtime, Communicator& group) -> Status {
    std::vector<Rank> reversed(static_cast<std::size_t>(group.size()));
    for (Rank r = 0; r < group.size(); ++r) reversed[static_cast<std::size_t>(r)] = group.size() - 1 - r;
    PC_ASSIGN_OR_RETURN(Communicator* const reversed_group, runtime.make_group(1, reversed));
    for (uint64_t call = 0; call < 72; ++call) {
      PC_TRY(make_and_check(group, call, count_for(call)));
      PC_TRY(make_and_check(*reversed_group, call, count_for(call + 9)));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Parts of very different sizes: some ranks combine few rounds and put many.
TEST_P(SharedMemory, uneven_reduce_scatters_end_and_are_exact) {
  const WorldOptions world = {.over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS};
  const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
    for (Rank large = 0; large < group.size(); ++large) {
      std::vector<uint64_t> counts(static_cast<std::size_t>(group.size()), 1000);
      counts[static_cast<std::size_t>(large)] = 1'000'000;
      std::size_t whole = 0, begin = 0;
      for (Rank r = 0; r < group.size(); ++r) {
        if (r == group.rank()) begin = whole;
        whole += counts[static_cast<std::size_t>(r)];
      }
      std::vector<float> in = array_of(group.rank(), 3, whole);
      std::vector<float> out(counts[static_cast<std::size_t>(group.rank())], -1.0F);
      Request request = request_of(Collective::kReduceScatter, in, out, 0);
      request.counts = counts;
      PC_TRY(group.run(request));
      for (std::size_t i = 0; i < out.size(); ++i) {
        float wanted = 0;
        for (Rank r = 0; r < group.size(); ++r) wanted += value(r, 3, begin + i);
        PC_TRY(expect(out, i, wanted, 3, Collective::kReduceScatter));
      }
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Only sender and receiver know these sizes, so only these two compare them.
TEST(SharedMemoryOfTwo, an_alltoall_with_a_receiver_that_expects_another_size_is_a_mismatch) {
  for (const uint64_t expected : {0UL, 1UL, 3UL, 6UL, 1'000'000UL}) {
    const WorldOptions world = {.over = Over::kShared, .size = 2, .timeout_s = kManyCallsS, .log_fd = -1};
    std::array<Status, 2> ended;
    const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
      const bool receives = group.rank() == 1;
      const std::vector<uint64_t> counts = {2, 2}, recv_counts = {receives ? expected : 2, 2};
      std::vector<float> in(4, 1.0F), out(recv_counts[0] + recv_counts[1], -1.0F);
      Request request = request_of(Collective::kAlltoall, in, out, 0);
      request.counts = counts;
      request.recv_counts = recv_counts;
      ended[static_cast<std::size_t>(group.rank())] = group.run(request);
      PC_TRY(group.resync());
      return make_and_check(group, 0, 100);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
    EXPECT_EQ(ended[1].code(), Code::kMismatch) << expected << ": " << ended[1].to_string();
  }
}

// ---- arrays that are read in place

struct Borrowed {
  Borrowed(Runtime& runtime, std::size_t count) : heap(runtime.heap()) {
    Result<std::byte*> made = heap->allocate(count * sizeof(float));
    if (made.is_ok()) memory = made.value();
  }
  ~Borrowed() {
    if (memory != nullptr) heap->free(memory);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  shm::Heap* heap;
  std::byte* memory = nullptr;
};

// Each rank has its arrays in the heap or not, as the bits of `heap_ranks` specify.
Status heap_calls(Runtime& runtime, Communicator& group, unsigned heap_ranks, std::size_t count,
                  uint64_t calls) {
  const std::size_t ranks = static_cast<std::size_t>(group.size());
  std::vector<float> own_x(count), own_y(count * ranks);
  Borrowed heap_x(runtime, count), heap_y(runtime, count * ranks);
  if (heap_x.memory == nullptr || heap_y.memory == nullptr) return Status(Code::kInternal, "no heap");
  const bool in_heap = (heap_ranks >> group.rank() & 1U) != 0;
  float* const x = in_heap ? reinterpret_cast<float*>(heap_x.memory) : own_x.data();
  float* const y = in_heap ? reinterpret_cast<float*>(heap_y.memory) : own_y.data();
  const Buffer at_x{reinterpret_cast<std::byte*>(x), count, DType::kF32};
  const Buffer at_y{reinterpret_cast<std::byte*>(y), count * ranks, DType::kF32};
  for (uint64_t call = 0; call < calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) x[i] = value(group.rank(), call, i);
    Request request;
    request.collective = Collective::kAllreduce;
    request.in = request.out = at_x;
    PC_TRY(group.run(request));
    for (std::size_t i = 0; i < count; ++i) {
      float wanted = 0;
      for (Rank r = 0; r < group.size(); ++r) wanted += value(r, call, i);
      PC_TRY(expect({x, count}, i, wanted, call, Collective::kAllreduce));
    }
    for (std::size_t i = 0; i < count; ++i) x[i] = value(group.rank(), call, i);
    request.collective = Collective::kAllgather;
    request.out = at_y;
    PC_TRY(group.run(request));
    for (std::size_t i = 0; i < count; ++i) x[i] = -1;  // immediately: no rank reads it any more
    for (std::size_t i = 0; i < count * ranks; ++i)
      PC_TRY(expect({y, count * ranks}, i, value(static_cast<Rank>(i / count), call, i % count), call,
                    Collective::kAllgather));
    request.collective = Collective::kReduceScatter;
    request.in = at_y;
    request.out = at_x;
    PC_TRY(group.run(request));
    for (std::size_t i = 0; i < count; ++i)
      PC_TRY(expect({x, count}, i, value(group.rank(), call, i) * static_cast<float>(ranks), call,
                    Collective::kReduceScatter));
    request.collective = Collective::kScan;
    request.in = request.out = at_x;
    PC_TRY(group.run(request));
    request.collective = Collective::kBroadcast;
    request.root = static_cast<Rank>(call % ranks);
    request.in = group.rank() == request.root ? at_x : Buffer{};
    PC_TRY(group.run(request));
  }
  return Status::ok();
}

TEST_P(SharedMemory, arrays_in_the_heap_and_others_go_together) {
  const WorldOptions world = {.over = Over::kShared, .size = GetParam(), .timeout_s = kManyCallsS};
  const Outcomes outcomes = run_world(world, [](Runtime& runtime, Communicator& group) -> Status {
    const unsigned all = (1U << group.size()) - 1;
    for (const unsigned heap_ranks : {0U, 1U, all - 1, all}) {
      for (const std::size_t count : {1UL, 1000UL, 50'000UL})
        PC_TRY(heap_calls(runtime, group, heap_ranks, count, 3));
    }
    if (group.size() == 3) PC_TRY(heap_calls(runtime, group, 5, 2'200'000, 1));  // large enough for all kinds
    const shm::Heap::Usage usage = runtime.heap()->usage();
    return usage.used_nbytes == 0 ? Status::ok() : Status(Code::kInternal, "not everything was given back");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
