// Calls on GPU arrays in a world of ranks: the right result, or the same error on every rank. FAKES
// of the driver and of NCCL.
#include "gpu/device_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <mutex>
#include <set>
#include <vector>

#include "device_world.h"

namespace pc::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Over, DeviceWorld, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(DeviceWorld, sums_are_right_on_any_number_of_ranks_and_mix_with_calls_of_the_cpu) {
  for (const Rank size : {1, 2, 3, 4}) {
    const Outcomes outcomes = run(size, [&](Runtime&, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
      float wanted = static_cast<float>(size * (size + 1)) / 2;
      PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
      for (int round = 0; round < 3; ++round, wanted *= static_cast<float>(size)) {
        PC_ASSIGN_OR_RETURN(const auto call, calls->launch(x.sum(), -1));
        PC_TRY(host_sum(group));
        PC_TRY(call->precede(x.stream.get()));
        PC_TRY(call->wait(-1));
        if (!call->done()) return wrong("not done after its end");
        PC_TRY(expect(x, wanted));
      }
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(DeviceWorld, different_calls_are_a_mismatch_on_all_ranks_and_the_cpu_goes_on) {
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    cuda::DeviceCall call = x.sum();
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    const auto started = calls->launch(call, -1);
    const Status ended = started.is_ok() ? started.value()->wait(-1) : started.status();
    if (ended.code() != Code::kMismatch || !has(ended, "prod"))
      return wrong("no mismatch: " + ended.to_string());
    const Status next = calls->launch(x.sum(), -1).status();
    if (next.code() != Code::kMismatch) return wrong("the next call says " + next.to_string());
    PC_TRY(group.resync());
    return host_sum(group);
  });
  nccl_->reset();  // the fake has detected it too, which real NCCL would not
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, an_array_on_the_cpu_of_another_rank_is_a_mismatch) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    Status ended;
    if (group.rank() == 0) {
      PC_ASSIGN_OR_RETURN(Array x, array_of(0));
      const auto started = calls->launch(x.sum(), -1);
      ended = started.is_ok() ? started.value()->wait(-1) : started.status();
    } else {
      ended = host_sum(group);
    }
    if (ended.code() != Code::kMismatch || !has(ended, "nccl"))
      return wrong("no mismatch: " + ended.to_string());
    return group.resync();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, a_rank_that_makes_no_call_is_named_at_the_deadline) {
  std::promise<void> given_up;
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    if (group.rank() == 1) {
      given_up.get_future().wait();
      return group.resync();
    }
    PC_ASSIGN_OR_RETURN(Array x, array_of(0));
    // on a busy machine the timeout may pass within launch()
    const auto started = calls->launch(x.sum(), 0.2);
    const Status ended = started.is_ok() ? started.value()->wait(-1) : started.status();
    given_up.set_value();
    if (ended.code() != Code::kTimeout || !has(ended, "rank 1")) return wrong(ended.to_string());
    return group.resync();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, a_gpu_that_does_not_end_a_call_in_time_ends_the_group) {
  std::promise<void> has_error;
  nccl::testing::StepClock late(std::chrono::milliseconds(1));
  const Outcomes outcomes = run(
      2,
      [&](Runtime&, Communicator& group) -> Status {
        DeviceCalls::Resources with = resources(group.rank());
        if (group.rank() == 0) with.clock = &late;
        PC_ASSIGN_OR_RETURN(const auto calls, join(group, with));
        PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
        fake_.hold_stream(x.stream.get());  // the work that produces x does not complete
        PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), -1));
        PC_TRY(host_sum(group));  // both ranks have made the call
        if (group.rank() == 0) late.advance(std::chrono::seconds(2 * static_cast<int>(kLong)));
        const Status ended = started->wait(-1);
        fake_.release_stream(x.stream.get());
        if (group.rank() == 0) {
          has_error.get_future().wait();  // this rank stays alive, so that the other rank sees no death
        } else {
          has_error.set_value();
        }
        return ended;
      },
      false);
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[0], "on the GPU in time") && has(outcomes[0], "allreduce")) << text_of(outcomes);
  EXPECT_EQ(outcomes[1].code(), Code::kPeerExited) << text_of(outcomes);
}

TEST_P(DeviceWorld, the_death_of_a_rank_ends_the_calls_of_the_others) {
  const Outcomes outcomes = run(
      3,
      [&](Runtime&, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
        PC_TRY(host_sum(group));
        if (group.rank() == 2) return Status::ok();  // its runtime ends without a goodbye
        PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
        const auto started = calls->launch(x.sum(), -1);
        const Status ended = started.is_ok() ? started.value()->wait(-1) : started.status();
        const Status next = calls->launch(x.sum(), -1).status();
        return next.is_ok() ? wrong("the next call goes on") : ended;
      },
      false);
  for (const std::size_t rank : {0UL, 1UL})
    EXPECT_EQ(outcomes[rank].code(), Code::kPeerFailure) << text_of(outcomes);
}

TEST_P(DeviceWorld, where_there_is_no_path_all_ranks_raise_the_same_and_the_cpu_goes_on) {
  std::mutex mutex;
  std::set<std::string> reasons;
  for (const bool shares : {false, true}) {
    const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
      DeviceCalls::Resources with = resources(shares ? group.rank() / 2 : group.rank());
      if (!shares && group.rank() == 2) {
        with.api = nullptr;
        with.why_not = Status(Code::kUnsupported, "no libnccl.so.2 was found");
      }
      const auto joined = join(group, with);
      if (joined.is_ok() || joined.status().code() != Code::kUnsupported)
        return wrong(joined.status().to_string());
      {
        const std::lock_guard lock(mutex);
        reasons.insert(joined.status().message());
      }
      return host_sum(group);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
  EXPECT_EQ(reasons.size(), 2U);
}

TEST_P(DeviceWorld, ranks_that_share_a_gpu_go_by_nccl_where_it_takes_them_to_be_on_hosts_of_their_own) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    DeviceCalls::Resources with = resources(0);
    with.host_id = "host " + std::to_string(group.rank());
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, with));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, a_rank_that_nccl_refuses_ends_the_group_instead_of_letting_the_others_wait) {
  nccl_->init_waits_for_all(1);
  nccl_->fail_next("CommInitRankConfig", 2, 0);
  nccl::testing::StepClock stands_still;  // no deadline passes
  std::promise<void> first, second;
  std::atomic<int> others{0};
  const Outcomes outcomes = run(
      3,
      [&](Runtime&, Communicator& group) -> Status {
        DeviceCalls::Resources with = resources(group.rank());
        with.clock = &stands_still;
        const Status joined = join(group, with).status();
        // its runtime stays alive, so that the other ranks see no death
        if (has(joined, "ncclSystemError")) {
          first.get_future().wait();
          second.get_future().wait();
        } else {
          (others++ == 0 ? first : second).set_value();
        }
        return joined;
      },
      false);
  std::size_t refused = 0;
  for (const Status& each : outcomes) {
    EXPECT_FALSE(each.is_ok());
    EXPECT_NE(each.code(), Code::kTimeout) << text_of(outcomes);
    refused += has(each, "ncclSystemError") ? 1 : 0;
  }
  EXPECT_GE(refused, 1U) << text_of(outcomes);
}

TEST_P(DeviceWorld, an_error_that_nccl_finds_on_one_rank_ends_the_others_and_names_the_call) {
  for (const bool waits : {true, false}) {  // otherwise only the watcher detects it
    std::promise<void> queued;
    const Outcomes outcomes = run(
        2,
        [&](Runtime&, Communicator& group) -> Status {
          PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
          PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
          fake_.hold_stream(x.stream.get());
          PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), -1));
          PC_TRY(host_sum(group));
          if (group.rank() == 1) queued.set_value();
          if (group.rank() == 0) {
            queued.get_future().wait();  // lets rank 1 complete its host_sum, which the error would end
            void* comm = nullptr;
            nccl_->last_comm(&comm);  // the communicator of either rank: both get the error
            nccl_->async_error(comm, 6);
          }
          const Status ended = waits ? started->wait(-1) : calls->settle(-1);
          fake_.release_stream(x.stream.get());
          return ended;
        },
        false);
    EXPECT_TRUE(has(outcomes[0], "ncclRemoteError") || has(outcomes[1], "ncclRemoteError"))
        << text_of(outcomes);
    EXPECT_TRUE(has(outcomes[0], "allreduce") || has(outcomes[1], "allreduce")) << text_of(outcomes);
    EXPECT_FALSE(outcomes[0].is_ok() || outcomes[1].is_ok()) << text_of(outcomes);
  }
}

TEST_P(DeviceWorld, a_settled_call_keeps_nothing_and_is_not_polled_any_more) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    PC_TRY(calls->settle(-1));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    auto kept = std::make_shared<int>();
    const std::weak_ptr<int> is_kept = kept;
    cuda::DeviceCall call = x.sum();
    call.keeps = std::exchange(kept, nullptr);
    fake_.hold_stream(x.stream.get());
    for (int i = 0; i < 3; ++i) PC_TRY(calls->launch(call, -1).status());
    call.keeps = nullptr;
    if (calls->settle(0).code() != Code::kTimeout) return wrong("calls that have not ended have settled");
    fake_.release_stream(x.stream.get());
    PC_TRY(calls->settle(-1));
    if (!is_kept.expired()) return wrong("what a call needs is kept after it has settled");
    PC_TRY(calls->settle(0));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, nothing_settles_after_a_failure) {
  const Outcomes outcomes = run(1, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    calls->abort(Status(Code::kAborted, "the test says so"));
    return calls->settle(-1).message() == "the test says so" ? Status::ok() : wrong("it has settled");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, bad_arguments_are_refused_on_their_rank_and_nothing_is_sent) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    if (group.rank() == 0) {
      cuda::DeviceCall call = x.sum();
      call.request.in.device.index = call.request.out.device.index = 1;
      const Status elsewhere = calls->launch(call, -1).status();
      if (elsewhere.code() != Code::kInvalidArgument || !has(elsewhere, "GPU 0"))
        return wrong(elsewhere.to_string());
      call = x.sum();
      call.request.out.count -= 1;
      const Status uneven = calls->launch(call, -1).status();
      if (uneven.code() != Code::kInvalidArgument) return wrong(uneven.to_string());
    }
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), -1));
    PC_TRY(started->wait(-1));
    PC_TRY(expect(x, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, strict_ranks_queue_nothing_before_all_have_made_the_call) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    DeviceCalls::Resources with = resources(group.rank());
    with.strict = true;
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, with));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    cuda::DeviceCall call = x.sum();
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    const Status refused = calls->launch(call, -1).status();
    if (refused.code() != Code::kMismatch) return wrong(refused.to_string());
    PC_TRY(expect(x, static_cast<float>(group.rank() + 1)));  // unchanged
    PC_TRY(group.resync());
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), -1));  // and the GPU's calls continue too
    PC_TRY(host_sum(group));
    PC_TRY(started->wait(-1));
    PC_TRY(expect(x, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, a_call_is_behind_what_makes_its_array_and_in_front_of_what_uses_it) {
  for (const bool on_caller_stream : {true, false}) {
    const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
      PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank()));
      const std::vector<float> values(kCount, static_cast<float>(10 + group.rank()));
      fake_.hold_stream(x.stream.get());
      PC_TRY(produce(x, values));
      cuda::DeviceCall call = x.sum();
      call.on_caller_stream = on_caller_stream;
      PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
      PC_TRY(started->precede(y.stream.get()));
      PC_TRY(copy(y, x, y.stream.get()));
      PC_TRY(host_sum(group));  // all ranks have queued theirs, and none has started
      if (started->done()) return wrong("done before its array was made");
      PC_TRY(expect(x, static_cast<float>(group.rank() + 1)));
      fake_.release_stream(x.stream.get());
      drain(y);
      PC_TRY(expect(y, 33));
      PC_TRY(started->wait(-1));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(DeviceWorld,
       who_waits_for_a_call_on_another_stream_sees_its_result_and_who_was_queued_before_need_not) {
  for (const bool on_caller_stream : {true, false}) {
    const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
      PC_ASSIGN_OR_RETURN(Array early, array_of(group.rank()));
      PC_ASSIGN_OR_RETURN(Array late, array_of(group.rank()));
      const float old = static_cast<float>(group.rank() + 1), fresh = old + 10;
      cuda::CUstream const theirs = late.stream.get();  // the stream of the consumer of x
      fake_.hold_stream(x.stream.get());
      fake_.hold_stream(theirs);
      PC_TRY(produce(x, std::vector<float>(kCount, fresh)));
      cuda::DeviceCall call = x.sum();
      call.on_caller_stream = on_caller_stream;
      PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
      PC_TRY(copy(early, x, theirs));
      PC_TRY(started->precede(theirs));
      PC_TRY(copy(late, x, theirs));
      PC_TRY(host_sum(group));  // all ranks have queued theirs
      fake_.step(theirs, 1);
      PC_TRY(expect(early, old));
      fake_.release_stream(theirs);
      fake_.step(x.stream.get(), 1);  // the producer, and no more
      PC_TRY(host_sum(group));
      PC_TRY(expect(x, fresh));
      if (fake_.queued(theirs) < 2) return wrong("it does not wait for the call");
      PC_TRY(host_sum(group));  // all ranks have checked
      fake_.release_stream(x.stream.get());
      drain(late);
      PC_TRY(expect(late, 23));
      PC_TRY(started->wait(-1));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(DeviceWorld, calls_on_the_callers_stream_and_beside_it_keep_their_order) {
  for (const bool first_is_on_caller_stream : {true, false}) {
    const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
      PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank()));  // used only for its stream
      fake_.hold_stream(x.stream.get());
      std::vector<std::shared_ptr<GpuWork>> all;
      for (int i = 0; i < 4; ++i) {  // all on x, on two streams, in both modes
        cuda::DeviceCall call = x.sum();
        if (i % 2 == 1) {
          call.request.op.op = ReduceOp::kProd;
          call.request.stream = y.stream.get();
        }
        call.on_caller_stream = (i % 3 == 0) == first_is_on_caller_stream;
        PC_ASSIGN_OR_RETURN(auto started, calls->launch(call, -1));
        all.push_back(std::move(started));
      }
      PC_TRY(host_sum(group));
      for (const auto& each : all) {
        if (each->done()) return wrong("done before the first, which waits for its stream");
      }
      PC_TRY(expect(x, static_cast<float>(group.rank() + 1)));
      fake_.release_stream(x.stream.get());
      for (const auto& each : all) PC_TRY(each->wait(-1));
      PC_TRY(expect(x, 324));  // ((1 + 2)^2 * 2)^2: no other order gives this
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(DeviceWorld, an_abort_ends_what_waits_for_a_rank_and_leaves_no_false_result) {
  for (const bool on_caller_stream : {true, false}) {
    std::latch others_ended(2), all_ended(3);
    const Outcomes outcomes = run(
        3,
        [&](Runtime&, Communicator& group) -> Status {
          PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
          PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
          if (group.rank() == 2) fake_.hold_stream(x.stream.get());
          cuda::DeviceCall call = x.sum();
          call.on_caller_stream = on_caller_stream;
          PC_ASSIGN_OR_RETURN(const auto started, calls->launch(call, -1));
          PC_TRY(host_sum(group));
          const bool waited = !started->done();
          if (group.rank() == 2) others_ended.wait();
          calls->abort(Status(Code::kAborted, "this rank has had enough"));
          fake_.release_stream(x.stream.get());
          fake_.drain_device(group.rank());  // its streams continue
          if (group.rank() != 2) others_ended.count_down();
          const Status ended = started->wait(-1);
          all_ended.arrive_and_wait();  // no rank sees the end of another before
          if (!is_nan(x)) PC_TRY(expect(x, static_cast<float>(group.rank() + 1)));
          if (!waited) return wrong("done without rank 2");
          return ended.code() == Code::kAborted ? Status::ok() : wrong(ended.to_string());
        },
        false);
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(DeviceWorld, a_call_in_a_graph_runs_whenever_that_is_launched_and_never_too_late) {
  nccl::testing::StepClock clock(std::chrono::milliseconds(1));
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    DeviceCalls::Resources with = resources(group.rank());
    with.clock = &clock;
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, with));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_TRY(host_sum(group));  // no rank allocates memory while another captures
    cuda::DeviceCall call = x.sum();
    call.on_caller_stream = true;
    fake_.begin_capture(x.stream.get());
    const auto captured = calls->launch(call, -1);
    if (fake_.end_capture(x.stream.get()) < 0) return wrong("the capture was invalidated");
    PC_TRY(captured.status());
    if (captured.value()->wait(-1).code() != Code::kUnsupported) return wrong("its end can be waited for");
    PC_TRY(host_sum(group));  // both ranks share the clock: both have captured
    clock.advance(std::chrono::seconds(2 * static_cast<int>(kLong)));  // its timeout was for launching it
    for (int round = 0; round < 3; ++round) {
      std::fill(x.begin(), x.begin() + kCount, static_cast<float>(round + group.rank()));
      PC_TRY(host_sum(group));
      fake_.replay(x.stream.get());
      drain(x);
      PC_TRY(expect(x, static_cast<float>(2 * round + 1)));
      PC_TRY(host_sum(group));
    }
    PC_ASSIGN_OR_RETURN(const auto eager, calls->launch(x.sum(), -1));
    PC_TRY(eager->wait(-1));
    PC_TRY(expect(x, 10));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, the_end_of_a_call_is_notified_once_however_it_ends) {
  std::atomic<int> notified{0};
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    std::promise<void> first, second;
    PC_ASSIGN_OR_RETURN(const auto good,
                        calls->launch(x.sum(), -1, [&](const Status&) { ++notified, first.set_value(); }));
    first.get_future().wait();
    if (!good->done() || !good->ended_well()) return wrong("not done");
    fake_.hold_stream(x.stream.get());
    PC_ASSIGN_OR_RETURN(const auto bad,
                        calls->launch(x.sum(), -1, [&](const Status&) { ++notified, second.set_value(); }));
    PC_TRY(host_sum(group));
    calls->abort(Status(Code::kAborted, "enough"));
    second.get_future().wait();
    if (!bad->outcome() || bad->ended_well()) return wrong("it has not failed");
    fake_.release_stream(x.stream.get());
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(notified, 4);
}

TEST_P(DeviceWorld, a_close_waits_for_the_calls_and_leaves_the_group_as_it_is) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    std::vector<std::shared_ptr<GpuWork>> started;
    for (int i = 0; i < 20; ++i) {
      PC_ASSIGN_OR_RETURN(auto call, calls->launch(x.sum(), -1));
      started.push_back(std::move(call));
    }
    PC_TRY(calls->close(-1));
    for (const auto& each : started) {
      if (!each->ended_well()) return wrong("a call is not done");
      PC_TRY(each->wait(-1));
    }
    return host_sum(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, a_wait_beside_a_close_ends_well_and_leaves_the_group_as_it_is) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    for (int round = 0; round < 10; ++round) {
      PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
      PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
      PC_ASSIGN_OR_RETURN(const auto started, calls->launch(x.sum(), -1));
      Status waited;
      std::thread waits([&] { waited = started->wait(-1); });
      const Status closed = calls->close(-1);
      waits.join();
      PC_TRY(waited);
      PC_TRY(closed);
      PC_TRY(host_sum(group));
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DeviceWorld, a_call_that_has_ended_is_not_late_because_the_watcher_was) {
  nccl::testing::StepClock clock(std::chrono::milliseconds(1));
  const Outcomes outcomes = run(1, [&](Runtime&, Communicator& group) -> Status {
    DeviceCalls::Resources with = resources(0);
    with.clock = &clock;
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, with));
    PC_ASSIGN_OR_RETURN(Array x, array_of(0));
    PC_ASSIGN_OR_RETURN(Array y, array_of(0));
    fake_.hold_stream(x.stream.get());
    fake_.hold_stream(y.stream.get());
    std::promise<void> over;
    // Releasing the first call takes long, like a release that waits for Python's lock. Meanwhile
    // the second completes on the GPU.
    cuda::DeviceCall first = x.sum();
    first.on_caller_stream = true;
    first.keeps = std::shared_ptr<const void>(&x, [&](const void*) {
      fake_.release_stream(y.stream.get());
      fake_.drain(y.stream.get());
      clock.advance(std::chrono::seconds(2 * static_cast<int>(kLong)));
      over.set_value();
    });
    PC_ASSIGN_OR_RETURN(const auto a, calls->launch(first, -1));
    first.keeps = nullptr;
    cuda::DeviceCall second = y.sum();
    second.on_caller_stream = true;
    PC_ASSIGN_OR_RETURN(const auto b, calls->launch(second, -1));
    PC_TRY(host_sum(group));
    fake_.release_stream(x.stream.get());
    over.get_future().wait();
    PC_TRY(calls->settle(5));
    PC_TRY(a->wait(-1));
    PC_TRY(b->wait(-1));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
