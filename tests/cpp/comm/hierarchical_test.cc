// Groups over several domains: what the executor suite cannot see. Hierarchical calls mixed with
// plans, calls that end in the middle, and groups with other domains than the world's.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "comm/explain_call.h"
#include "engine/shm/limits.h"
#include "mixture.h"

namespace pc::testing {
namespace {

using DomainSizes = std::vector<Rank>;

Rank size_of(const DomainSizes& domains) {
  Rank size = 0;
  for (const Rank of : domains) size += of;
  return size;
}
WorldOptions world_of(const DomainSizes& domains) {
  return {.over = Over::kDomains,
          .size = size_of(domains),
          .domains = domains,
          .timeout_s = kManyCallsS,
          .log_fd = -1};
}
std::string name_of(const DomainSizes& domains) {
  std::string name;
  for (const Rank of : domains) name += (name.empty() ? "" : "_") + std::to_string(of);
  return name;
}

class Hierarchical : public ::testing::TestWithParam<DomainSizes> {};
INSTANTIATE_TEST_SUITE_P(ShmDomains, Hierarchical,
                         ::testing::Values(DomainSizes{2, 1}, DomainSizes{2, 2}, DomainSizes{1, 3},
                                           DomainSizes{2, 2, 2}),
                         [](const ::testing::TestParamInfo<DomainSizes>& each) {
                           return name_of(each.param);
                         });

TEST_P(Hierarchical, calls_of_all_kinds_and_sizes_follow_each_other_exactly) {
  const Outcomes outcomes = run_world(world_of(GetParam()), [](Runtime&, Communicator& group) -> Status {
    for (uint64_t call = 0; call < 72; ++call) PC_TRY(make_and_check(group, call, count_for(call)));
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Hierarchical, explain_says_so_and_what_runs_plans_says_that) {
  const Outcomes outcomes = run_world(world_of(GetParam()), [](Runtime&, Communicator& group) -> Status {
    for (const Collective collective : {Collective::kAllreduce, Collective::kAlltoall}) {
      ExplainedCall call;
      call.collective = collective;
      call.nbytes = 1 << 20;
      PC_ASSIGN_OR_RETURN(const std::string text, group.explain(call));
      const bool says_so = text.find("algorithm: hierarchical") != std::string::npos;
      if (says_so != (collective == Collective::kAllreduce)) return wrong(text);
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Sums are rounded, but all ranks reduce in the same order.
TEST_P(Hierarchical, all_ranks_get_the_same_bits) {
  const Outcomes outcomes = run_world(world_of(GetParam()), [](Runtime&, Communicator& group) -> Status {
    for (const std::size_t count : {3UL, 5'000UL, 700'001UL}) {
      std::mt19937 random(static_cast<unsigned>(group.rank()) + 1);
      std::vector<float> sum(count), theirs(count);
      for (float& x : sum) x = std::uniform_real_distribution<float>(-1, 1)(random);
      PC_TRY(group.run(request_of(Collective::kAllreduce, sum, sum, 0)));
      theirs = sum;
      Request request = request_of(Collective::kBroadcast, theirs, theirs, 0);
      if (group.rank() != 0) request.in = {};
      PC_TRY(group.run(request));
      if (std::memcmp(sum.data(), theirs.data(), count * sizeof(float)) != 0) return wrong("other bits");
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// The other ranks enter the call only when the root's call has returned.
TEST_P(Hierarchical, the_root_of_a_small_broadcast_waits_for_no_rank) {
  for (const std::size_t count : {1UL, 100UL}) {
    std::atomic<int> returned{0};
    const Outcomes outcomes = run_world(world_of(GetParam()), [&](Runtime&, Communicator& group) -> Status {
      for (Rank root = 0; root < group.size(); ++root) {
        // so that no rank has still to join, or is still in the previous call
        PC_TRY(make_and_check(group, 0, 1));
        std::vector<float> x = array_of(root, 0, count);
        while (group.rank() != root && returned.load() == root) std::this_thread::yield();
        Request request = request_of(Collective::kBroadcast, x, x, root);
        if (group.rank() != root) {
          std::fill(x.begin(), x.end(), -1.0F);
          request.in = {};
        }
        PC_TRY(group.run(request));
        if (group.rank() == root) returned = root + 1;
        if (x != array_of(root, 0, count)) return wrong("wrong result");
      }
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

// The root enters the call only when the calls of the other ranks have returned.
TEST_P(Hierarchical, no_rank_waits_for_the_root_of_a_small_reduce) {
  for (const std::size_t count : {1UL, 100UL}) {
    std::atomic<int> returned{0};
    const Outcomes outcomes = run_world(world_of(GetParam()), [&](Runtime&, Communicator& group) -> Status {
      PC_TRY(make_and_check(group, 0, 1));
      std::vector<float> x = array_of(group.rank(), 0, count), sum(count);
      while (group.rank() == 0 && returned.load() != group.size() - 1) std::this_thread::yield();
      PC_TRY(group.run(request_of(Collective::kReduce, x, sum, 0)));
      if (group.rank() != 0) ++returned;
      float wanted = 0;
      for (Rank r = 0; r < group.size(); ++r) wanted += value(r, 0, 0);
      return group.rank() == 0 ? expect(sum, 0, wanted, 0, Collective::kReduce) : Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

// The root runs ahead as far as the protocol allows.
TEST_P(Hierarchical, roots_that_run_ahead_overwrite_nothing) {
  const Outcomes outcomes = run_world(world_of(GetParam()), [](Runtime&, Communicator& group) -> Status {
    for (uint64_t call = 0; call < 120; ++call) {
      const std::size_t count = count_for(call);
      const Rank root = static_cast<Rank>(call / 16) % group.size();
      std::vector<float> x = array_of(root, call, count);
      if (group.rank() != root) std::fill(x.begin(), x.end(), -1.0F);
      Request request = request_of(Collective::kBroadcast, x, x, root);
      if (group.rank() != root) request.in = {};
      PC_TRY(group.run(request));
      for (std::size_t i = 0; i < count; ++i)
        PC_TRY(expect(x, i, value(root, call, i), call, Collective::kBroadcast));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// One rank skips a call, makes another call, or drops it in the middle. The other ranks fail or
// have the right result.
Status go_wrong(Communicator& group, uint64_t call, std::size_t count, unsigned how) {
  std::vector<float> x = array_of(group.rank(), call, count);
  if (how % 3 == 0) return Status::ok();  // this rank does not make the call
  if (how % 3 == 1) {
    (void)group.run(request_of(Collective::kReduce, x, x, 0), 5);
    return Status::ok();
  }
  Result<WorkPtr> work = group.launch(request_of(Collective::kAllreduce, x, x, 0));
  PC_TRY(work.status());
  for (unsigned steps = how % 16; steps > 0; --steps) work.value()->progress();
  return Status::ok();
}

TEST_P(Hierarchical, after_calls_that_are_given_up_anywhere_the_next_ones_are_exact) {
  const Outcomes outcomes = run_world(world_of(GetParam()), [](Runtime&, Communicator& group) -> Status {
    std::mt19937 all(7);  // chooses the same on all ranks
    for (uint64_t call = 0; call < 16; ++call) {
      const Rank odd = static_cast<Rank>(all() % static_cast<uint64_t>(group.size()));
      const std::size_t count = count_for(all());
      const unsigned how = static_cast<unsigned>(all());
      if (group.rank() == odd) {
        PC_TRY(go_wrong(group, call, count, how));
      } else {
        std::vector<float> x = array_of(group.rank(), call, count);
        const Status ended = group.run(request_of(Collective::kAllreduce, x, x, 0));
        for (std::size_t i = 0; i < count && ended.is_ok(); ++i) {
          float wanted = 0;
          for (Rank r = 0; r < group.size(); ++r) wanted += value(r, call, i);
          PC_TRY(expect(x, i, wanted, call, Collective::kAllreduce));
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

// Refused arguments use no sequence number: the next call is right on all ranks.
TEST_P(Hierarchical, refused_arguments_leave_the_group_as_it_was) {
  const Outcomes outcomes = run_world(world_of(GetParam()), [](Runtime&, Communicator& group) -> Status {
    std::vector<float> x = array_of(group.rank(), 0, 10), y(9);
    for (uint64_t call = 0; call < 20; ++call) {
      if (group.rank() == static_cast<Rank>(call) % group.size() &&
          group.run(request_of(Collective::kAllreduce, x, y, 0)).code() != Code::kInvalidArgument)
        return wrong("it was not refused");
      PC_TRY(make_and_check(group, call, count_for(call)));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// A rank ends after some steps of a call, in a small call and in a call of many rounds.
TEST_P(Hierarchical, the_death_of_a_rank_anywhere_in_a_call_ends_it_everywhere) {
  for (const std::size_t count : {4UL, 400'000UL}) {
    for (const unsigned steps : {0U, 1U, 2U, 5U, 20U}) {
      for (const Rank victim : {0, size_of(GetParam()) - 1}) {
        WorldOptions world = world_of(GetParam());
        world.shut_down = false;
        const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
          PC_TRY(make_and_check(group, 0, 10));
          std::vector<float> x = array_of(group.rank(), 1, count);
          const Request request = request_of(Collective::kAllreduce, x, x, 0);
          if (group.rank() != victim) {
            // the first call may have completed
            for (int call = 0; call < 3; ++call) PC_TRY(group.run(request));
            return Status::ok();
          }
          Result<WorkPtr> work = group.launch(request);
          PC_TRY(work.status());
          for (unsigned i = steps; i > 0; --i) work.value()->progress();
          group.abort(Status(Code::kAborted, "it is the victim"));
          return Status::ok();
        });
        for (std::size_t r = 0; r < outcomes.size(); ++r) {
          if (static_cast<Rank>(r) == victim) continue;
          EXPECT_EQ(outcomes[r].code(), Code::kPeerFailure) << text_of(outcomes);
        }
      }
    }
  }
}

TEST_P(Hierarchical, groups_with_different_domains_do_not_disturb_each_other) {
  const Outcomes outcomes =
      run_world(world_of(GetParam()), [](Runtime& runtime, Communicator& group) -> Status {
        const Rank size = group.size();
        std::vector<Rank> reversed, ends{0, size - 1}, without_first;
        for (Rank r = 0; r < size; ++r) reversed.push_back(size - 1 - r);
        for (Rank r = 1; r < size; ++r) without_first.push_back(r);
        std::vector<Communicator*> groups{&group};
        uint32_t id = 1;
        for (const std::vector<Rank>& ranks : {reversed, ends, without_first}) {
          const uint32_t number = id++;
          if (std::find(ranks.begin(), ranks.end(), group.rank()) == ranks.end()) continue;
          PC_ASSIGN_OR_RETURN(Communicator* const made, runtime.make_group(number, ranks));
          groups.push_back(made);
        }
        for (uint64_t call = 0; call < 72; ++call) {
          for (Communicator* const each : groups) PC_TRY(make_and_check(*each, call, count_for(call)));
        }
        return Status::ok();
      });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Hierarchical, calls_are_exact_at_the_ends_of_all_limits) {
  for (const bool least : {true, false}) {
    std::string tuning;
    for (const shm::LimitRow& row : shm::limit_table()) {
      for (const char* ranks : {"2:", "3:"})
        tuning += ranks + std::string(row.name) + "=" + std::to_string(least ? row.least : row.most) + "|";
    }
    WorldOptions world = world_of(GetParam());
    world.tuning = tuning;
    const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
      for (uint64_t call = 0; call < 72; ++call) PC_TRY(make_and_check(group, call, count_for(call)));
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << tuning << "\n" << text_of(outcomes);
  }
}

// Calls of many rounds, in which one of the hosts is late: the other hosts have as many rounds in
// flight as the protocol allows.
bool goes_in_rounds(uint64_t call) {
  switch (call % 9) {  // as in make_and_check()
    case 4:
    case 6:
    case 7:
    case 8: return false;
    default: return true;
  }
}

TEST_P(Hierarchical, what_is_on_its_way_between_hosts_is_not_overwritten_however_small_the_ring) {
  WorldOptions world = world_of(GetParam());
  world.tuning = "2:ring=262144|3:ring=262144|";
  const Outcomes outcomes = run_world(world, [](Runtime&, Communicator& group) -> Status {
    for (uint64_t call = 0; call < 36; ++call) {
      if (!goes_in_rounds(call)) continue;
      const Rank late = call / 9 % 2 == 0 ? group.size() - 1 : 0;
      if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      PC_TRY(make_and_check(group, call, 300'000));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// After the first call the rest of the ring is too small for the largest number of rounds that the
// second call may have in flight.
TEST(HierarchicalOfTen, a_short_reduce_scatter_and_then_a_long_one_are_exact) {
  constexpr uint64_t kReduceScatter = 5;  // in make_and_check()
  const Outcomes outcomes = run_world(world_of({5, 5}), [](Runtime&, Communicator& group) -> Status {
    for (uint64_t round = 0; round < 2; ++round) {
      PC_TRY(make_and_check(group, kReduceScatter, 128));
      if (group.rank() >= 5) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      PC_TRY(make_and_check(group, kReduceScatter, 150'000));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
