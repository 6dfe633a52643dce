// A thread that is stuck inside NCCL while it queues a call: every end of the call releases the
// thread. FAKES of the driver and of NCCL. The fake's calls return here only when their
// communicator is aborted.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>

#include "device_world.h"

namespace pc::testing {
namespace {

class StuckCalls : public DeviceWorld {
 protected:
  // Two ranks have joined. From here on no NCCL call completes.
  Outcomes run_stuck(const std::function<Status(Communicator&, DeviceCalls&)>& body) {
    return run(
        2,
        [&](Runtime&, Communicator& group) -> Status {
          DeviceCalls::Resources with = resources(group.rank());
          with.interrupted = [this, main = ::pthread_self(), rank = group.rank()](pthread_t thread,
                                                                                  TimePoint) {
            return rank == 0 && pressed && ::pthread_equal(main, thread) != 0;
          };
          PC_ASSIGN_OR_RETURN(const auto calls, join(group, with));
          PC_TRY(host_sum(group));
          nccl_->hang_calls(1);
          PC_TRY(host_sum(group));
          return body(group, *calls);
        },
        false);
  }
  Status sum(Communicator& group, DeviceCalls& calls, double timeout_s = kLong,
             ReduceOp op = ReduceOp::kSum) {
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    cuda::DeviceCall call = x.sum();
    call.request.op.op = op;
    return calls.launch(call, timeout_s).status();
  }
  void wait_for_a_stuck_call() const {
    while (nccl_->blocked() == 0) std::this_thread::yield();
  }

  std::atomic<bool> pressed{false};
};
INSTANTIATE_TEST_SUITE_P(Over, StuckCalls, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(StuckCalls, end_at_their_deadline_and_name_the_rank_that_made_no_call) {
  std::promise<void> ended;
  const Outcomes outcomes = run_stuck([&](Communicator& group, DeviceCalls& calls) -> Status {
    if (group.rank() == 1) return ended.get_future().wait(), Status::ok();
    const Status late = sum(group, calls, 0.2);
    ended.set_value();
    return late;
  });
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[0], "rank 1")) << text_of(outcomes);
  EXPECT_EQ(nccl_->alive(), 0);
}

TEST_P(StuckCalls, end_at_their_deadline_where_all_ranks_have_made_them) {
  std::promise<void> has_error;
  const Outcomes outcomes = run_stuck([&](Communicator& group, DeviceCalls& calls) -> Status {
    const Status late = sum(group, calls, group.rank() == 0 ? 0.2 : kLong);
    group.rank() == 1
        ? has_error.set_value()
        : has_error.get_future().wait();  // rank 0 stays alive until the other rank has its error
    return late;
  });
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[0], "still queueing it on the GPU")) << text_of(outcomes);
  EXPECT_EQ(outcomes[1].code(), Code::kPeerExited) << text_of(outcomes);
}

TEST_P(StuckCalls, end_when_a_rank_dies) {
  const Outcomes outcomes = run_stuck([&](Communicator& group, DeviceCalls& calls) -> Status {
    // its runtime ends without a goodbye
    if (group.rank() == 1) return wait_for_a_stuck_call(), Status::ok();
    const Status ended = sum(group, calls);
    return sum(group, calls).code() == ended.code() ? ended : wrong("the next call says something else");
  });
  EXPECT_EQ(outcomes[0].code(), Code::kPeerFailure) << text_of(outcomes);
}

TEST_P(StuckCalls, of_different_kinds_are_a_mismatch_on_all_ranks_and_the_cpu_goes_on) {
  std::latch done(2);  // a rank that ends without a goodbye would fail the other rank's last sum
  const Outcomes outcomes = run_stuck([&](Communicator& group, DeviceCalls& calls) -> Status {
    const Status ended = sum(group, calls, kLong, group.rank() == 0 ? ReduceOp::kSum : ReduceOp::kProd);
    if (ended.code() != Code::kMismatch || !has(ended, "prod"))
      return done.count_down(), wrong(ended.to_string());
    const Status resynced = group.resync();
    const Status summed = resynced.is_ok() ? host_sum(group) : resynced;
    done.arrive_and_wait();
    return summed;
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StuckCalls, end_at_their_deadline_while_the_driver_answers_nothing) {
  std::promise<void> has_error;
  const Outcomes outcomes = run(
      2,
      [&](Runtime&, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
        // It is queued and does not complete, so that the pollers of both ranks query the driver
        // for it.
        PC_ASSIGN_OR_RETURN(const Array waits, array_of(group.rank()));
        PC_ASSIGN_OR_RETURN(const Array x, array_of(group.rank()));
        fake_.hold_stream(waits.stream.get());
        PC_TRY(calls->launch(waits.sum(), kLong).status());
        fake_.hold_queries(1);
        while (fake_.held_queries() < 2) std::this_thread::yield();
        PC_TRY(host_sum(group));
        nccl_->hang_calls(1);
        PC_TRY(host_sum(group));
        const Status late = calls->launch(x.sum(), group.rank() == 0 ? 0.2 : kLong).status();
        group.rank() == 1 ? has_error.set_value() : has_error.get_future().wait();
        fake_.hold_queries(0);
        fake_.release_stream(waits.stream.get());
        return late;
      },
      false);
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_EQ(outcomes[1].code(), Code::kPeerExited) << text_of(outcomes);
}

TEST_P(StuckCalls, do_not_keep_a_group_from_its_end_where_the_driver_never_answers) {
  std::latch both_summed(2);  // a rank that ended before would be a death for the other one's sum
  const Outcomes outcomes = run(
      2,
      [&](Runtime&, Communicator& group) -> Status {
        DeviceCalls::Resources with = resources(group.rank());
        with.wait_limit = std::chrono::milliseconds(50);
        PC_ASSIGN_OR_RETURN(auto calls, DeviceCalls::join(group, with, kLong));
        PC_ASSIGN_OR_RETURN(const Array waits, array_of(group.rank()));
        fake_.hold_stream(waits.stream.get());
        PC_TRY(calls->launch(waits.sum(), kLong).status());
        fake_.hold_queries(1);
        while (fake_.held_queries() < 2) std::this_thread::yield();
        const std::weak_ptr<DeviceCalls> left = calls;
        calls->abort(Status(Code::kAborted, "the test is over"));
        calls = nullptr;
        if (left.expired()) return wrong("its poller was not left behind");
        const Status summed = host_sum(group);
        both_summed.arrive_and_wait();
        fake_.hold_queries(0);
        fake_.release_stream(waits.stream.get());
        // the query returns, and all resources are released
        while (!left.expired()) std::this_thread::yield();
        return summed;
      },
      false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StuckCalls, end_by_ctrl_c) {
  std::promise<void> has_error;
  const Outcomes outcomes = run_stuck([&](Communicator& group, DeviceCalls& calls) -> Status {
    if (group.rank() == 1) {
      wait_for_a_stuck_call();
      pressed = true;
    }
    const Status ended = sum(group, calls);
    group.rank() == 1 ? has_error.set_value() : has_error.get_future().wait();
    return ended;
  });
  EXPECT_EQ(outcomes[0].code(), Code::kAborted) << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[0], "interrupted on this rank")) << text_of(outcomes);
  EXPECT_FALSE(outcomes[1].is_ok()) << text_of(outcomes);
  EXPECT_NE(outcomes[1].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_EQ(nccl_->alive(), 0);
}

}  // namespace
}  // namespace pc::testing
