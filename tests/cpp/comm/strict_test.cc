// PYCOLLECTIVE_CHECK=strict: every rank detects a disagreement in the call itself, whatever its own
// part was.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "comm/requests.h"
#include "polling.h"

namespace pc::testing {
namespace {

class Strict : public ::testing::TestWithParam<Over> {
 protected:
  Outcomes run(Rank size, const Body& body) {
    return run_world({.over = GetParam(), .size = size, .timeout_s = kLong, .check = Check::kStrict}, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Strict,
                         ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared, Over::kDomains),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

// A call of `count` float32, which lives as long as this.
struct Call {
  Call(Communicator& group, Collective collective, Rank root = 0, std::size_t count = 4)
      : x(contribution(DType::kF32, count, group.rank(), group.size())) {
    request.collective = collective;
    request.root = root;
    if (collective == Collective::kBarrier) return;
    request.in = x.view();
    request.out = x.buffer();
  }
  Elements x;
  Request request;
};

constexpr Collective kAll[] = {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce,
                               Collective::kBarrier};

TEST_P(Strict, other_collectives_and_roots_are_found_by_all_and_the_next_call_is_right) {
  for (const Rank size : {2, 3, 4}) {
    const Outcomes outcomes = run(size, [&](Runtime&, Communicator& group) -> Status {
      for (const Collective usual : kAll) {
        for (const Collective other : kAll) {
          for (Rank odd = 0; odd < size; ++odd) {
            const bool rooted = usual == Collective::kBroadcast || usual == Collective::kReduce;
            if (usual == other && !rooted) continue;
            const Rank root = usual == other ? 1 : 0;  // differs in the root, or in the collective
            const bool mine = group.rank() == odd;
            Call call(group, mine ? other : usual, mine ? root : 0);
            const Status status = group.run(call.request);
            const std::string what = std::string(name_of(usual)) + ", rank " + std::to_string(odd) + ": " +
                                     std::string(name_of(other));
            if (status.code() != Code::kMismatch) return unexpected(status, what);
            if (const Status next = right_allreduce(group); !next.is_ok())
              return unexpected(next, "after " + what);
          }
        }
      }
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << "size " << size << "\n" << text_of(outcomes);
  }
}

TEST_P(Strict, launched_work_raises_it_too_and_dropped_work_does_not_block_the_others) {
  std::atomic<bool> was_dropped{false};
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    Call call(group, Collective::kBroadcast, group.rank() == 2 ? 1 : 0);
    {
      PC_ASSIGN_OR_RETURN(const WorkPtr work, group.launch(call.request));
      const Status status = work->wait({Deadline::after(kLong)});
      if (status.code() != Code::kMismatch || !work->done()) return unexpected(status, "different roots");
    }
    PC_TRY(right_allreduce(group));
    Call dropped(group, Collective::kAllreduce);
    while (group.rank() != 1 && !was_dropped.load()) std::this_thread::yield();  // it could complete before
    Result<WorkPtr> work = group.launch(dropped.request);
    PC_TRY(work.status());
    if (group.rank() == 1) {
      work.value().reset();
      was_dropped = true;
    } else if (const Status status = work.value()->wait({Deadline::after(kLong)});
               status.code() != Code::kAborted) {
      return unexpected(status, "dropped by rank 1");
    }
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Strict, the_error_names_the_call_and_not_its_confirmation) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    PC_TRY(right_allreduce(group));
    Call call(group, Collective::kBroadcast, group.rank() == 2 ? 1 : 0);
    const Status status = group.run(call.request);
    if (status.code() != Code::kMismatch || status.sequence() != 3) return unexpected(status, "roots");
    if (status.to_string().find("broadcast #3") == std::string::npos)
      return unexpected(status, "which call?");
    PC_TRY(group.resync());
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Strict, a_late_rank_makes_the_others_time_out_and_all_count_on_together) {
  std::atomic<int> gave_up{0};
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    for (int round = 1; round <= 3; ++round) {
      // The root's part of a small broadcast completes at once, but the root then waits in the
      // confirmation that strict checking adds.
      if (group.rank() == 2) poll_until([&] { return gave_up.load() >= 2 * round; });
      Call call(group, Collective::kBroadcast);
      const Status status = group.run(call.request, group.rank() == 2 ? kLong : 0.3);
      if (status.code() != Code::kTimeout) return unexpected(status, "a late rank");
      if (group.rank() != 2) ++gave_up;
      if (const Status next = right_allreduce(group); !next.is_ok()) return unexpected(next, "after it");
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// One of two threads disagrees with other ranks, and only that thread gets the error.
TEST_P(Strict, a_disagreement_of_one_thread_is_reported_once_and_in_that_thread) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    for (int round = 0; round < 30; ++round) {
      Call wrong(group, Collective::kBroadcast, group.rank() == 2 ? 1 : 0),
          right(group, Collective::kAllreduce);
      PC_ASSIGN_OR_RETURN(const WorkPtr first, group.launch(wrong.request));
      PC_ASSIGN_OR_RETURN(const WorkPtr second, group.launch(right.request));
      Status of_second;
      std::thread waiter([&] { of_second = second->wait({Deadline::after(kLong)}); });
      const Status of_first = first->wait({Deadline::after(kLong)});
      waiter.join();
      if (of_first.code() != Code::kMismatch) return unexpected(of_first, "wrong root");
      if (!of_second.is_ok()) return unexpected(of_second, "another call");
      PC_TRY(right_allreduce(group));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Strict, two_threads_may_use_one_group) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    std::vector<Status> ended(2);
    std::vector<std::thread> threads;
    for (Status& status : ended) {
      threads.emplace_back([&group, &status] {
        for (int i = 0; i < 100 && status.is_ok(); ++i) status = right_allreduce(group);
      });
    }
    for (std::thread& thread : threads) thread.join();
    PC_TRY(ended[0]);
    return ended[1];
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
