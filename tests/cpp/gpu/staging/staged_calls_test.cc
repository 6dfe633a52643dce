// Calls on GPU arrays that go through the host: everything that the CPU can do, with its results
// and its errors. A FAKE driver.
#include "gpu/staging/staged_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "gpu/device_world.h"
#include "gpu/gpu_cells.h"

namespace pc::testing {
namespace {

class StagedWorld : public DeviceWorld {
 protected:
  void SetUp() override {
    DeviceWorld::SetUp();
    fake_.set_device_count(8);
  }
  // Drains the rank's fake GPU before the calls are released. Then no copies are in flight, and
  // nothing is leaked.
  Result<std::shared_ptr<StagedCalls>> stage(Communicator& group) {
    PC_ASSIGN_OR_RETURN(std::shared_ptr<StagedCalls> made,
                        StagedCalls::create(group, driver_, group.rank(), kLong));
    StagedCalls* const calls = made.get();
    return std::shared_ptr<StagedCalls>(
        calls, [this, rank = group.rank(), kept = std::move(made)](StagedCalls*) mutable {
          fake_.drain_device(rank);
          kept.reset();
        });
  }
  static UserCall sum_of(const Array& x) {
    UserCall made;
    made.request = x.sum().request;
    return made;
  }
  static UserCall message(const Array& x, UserCall::Kind kind, Rank peer) {
    UserCall made = sum_of(x);
    made.kind = kind;
    made.request.root = peer;
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Over, StagedWorld, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(StagedWorld, what_the_cpu_can_do_arrays_on_gpus_can_with_the_same_bits) {
  const std::vector<Cell> cells = cells_of_every_kind();
  for (const Rank size : {1, 2, 3, 4, 5, 8}) {
    const Outcomes outcomes = run(size, [&](Runtime&, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
      PC_ASSIGN_OR_RETURN(Array memory, array_of(group.rank(), std::size_t{16} * 2 * 1000 * 2));
      PC_TRY(expect_as_on_cpu(group, cells, reinterpret_cast<std::byte*>(memory.begin()), group.rank(),
                              memory.stream.get(),
                              [&](const UserCall& call) { return calls->run(call, -1); }));
      return calls->close(-1);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
  EXPECT_EQ(fake_.calls("pageable"), 0);  // every copy uses pinned memory
}

TEST_P(StagedWorld, ranks_with_arrays_on_the_cpu_are_in_the_same_call) {
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    if (group.rank() == 1) {
      std::vector<float> x(kCount, 2);
      Request request;
      request.collective = Collective::kAllreduce;
      request.out = {reinterpret_cast<std::byte*>(x.data()), kCount, DType::kF32};
      request.in = request.out;
      PC_TRY(group.run(request));
      PC_TRY(group.recv(request.out, 0, 5));
      return x[0] == 6 && x[kCount - 1] == 6 ? Status::ok() : wrong("the CPU has another sum");
    }
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_TRY(calls->run(sum_of(x), -1));
    PC_TRY(expect(x, 6));
    if (group.rank() != 0) return Status::ok();
    UserCall send = message(x, UserCall::Kind::kSend, 1);
    send.tag = 5;
    return calls->run(send, -1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, messages_go_round_a_ring_and_both_ways_at_once) {
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank()));
    const Rank next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    PC_ASSIGN_OR_RETURN(const auto receiving, calls->begin(message(y, UserCall::Kind::kRecv, before), -1));
    PC_ASSIGN_OR_RETURN(const auto sending, calls->begin(message(x, UserCall::Kind::kSend, next), -1));
    PC_TRY(receiving->wait(-1));
    PC_TRY(sending->wait(-1));
    PC_TRY(expect(y, static_cast<float>(before + 1)));
    UserCall both = message(y, UserCall::Kind::kSendrecv, next);
    both.request.out = x.sum().request.out;
    both.source = before;
    PC_TRY(calls->run(both, -1));
    PC_TRY(expect(x, static_cast<float>((group.rank() + 1) % 3 + 1)));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, a_list_goes_as_one_and_need_not_outlive_its_beginning) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank(), 7));
    auto list = std::make_unique<IoVec>();
    list->add(reinterpret_cast<std::byte*>(x.begin()), kCount * sizeof(float));
    list->add(reinterpret_cast<std::byte*>(y.begin()), 7 * sizeof(float));
    UserCall call = sum_of(x);
    Request& request = call.request;
    request.in.data = nullptr;
    request.out.data = nullptr;
    request.in.count = request.out.count = kCount + 7;
    request.in.list = request.out.list = list.get();
    PC_ASSIGN_OR_RETURN(const auto started, calls->begin(call, -1));
    list.reset();
    PC_TRY(started->wait(-1));
    PC_TRY(expect(x, 3));
    PC_TRY(expect(y, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, a_call_is_behind_what_makes_its_array_and_in_front_of_what_uses_it) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank()));
    for (const bool blocks : {true, false}) {
      fake_.hold_stream(x.stream.get());
      PC_TRY(produce(x, std::vector<float>(kCount, static_cast<float>(10 + group.rank()))));
      auto later = std::async(std::launch::async, [&] { fake_.release_stream(x.stream.get()); });
      if (blocks) {
        PC_TRY(calls->run(sum_of(x), -1));
      } else {
        PC_ASSIGN_OR_RETURN(const auto started, calls->begin(sum_of(x), -1));
        fake_.hold_stream(y.stream.get());
        PC_TRY(started->precede(y.stream.get()));
        PC_TRY(copy(y, x, y.stream.get()));
        fake_.release_stream(y.stream.get());
        drain(y);
        PC_TRY(expect(y, 21));
        PC_TRY(started->wait(-1));
        if (!started->done() || !started->ended_well()) return wrong("not done after its end");
      }
      later.wait();
      PC_TRY(expect(x, 21));
    }
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, different_calls_are_a_mismatch_and_the_group_goes_on) {
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    UserCall call = sum_of(x);
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    const auto started = calls->begin(call, -1);
    const Status ended = started.is_ok() ? started.value()->wait(-1) : started.status();
    if (ended.code() != Code::kMismatch || !has(ended, "prod")) return wrong(ended.to_string());
    if (started.is_ok() && (!started.value()->outcome() || started.value()->ended_well()))
      return wrong("it has not failed");
    PC_TRY(expect(x, static_cast<float>(group.rank() + 1)));  // unchanged
    PC_TRY(group.resync());
    PC_TRY(calls->run(sum_of(x), -1));
    PC_TRY(expect(x, 6));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, close_returns_no_error_that_a_wait_has_returned) {
  std::promise<void> notified[2], released[2];
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    // The watcher stays in this callback until the group is closed, so that it removes no other
    // call.
    PC_ASSIGN_OR_RETURN(const auto right,
                        calls->begin(sum_of(x), -1, [&, rank = group.rank()](const Status&) {
                          notified[rank].set_value();
                          released[rank].get_future().wait();
                        }));
    PC_TRY(right->wait(-1));
    notified[group.rank()].get_future().wait();
    UserCall call = sum_of(x);
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    const auto wrong_call = calls->begin(call, -1);
    const Status ended = wrong_call.is_ok() ? wrong_call.value()->wait(-1) : wrong_call.status();
    const Status closed = calls->close(-1);
    released[group.rank()].set_value();
    if (ended.code() != Code::kMismatch) return wrong(ended.to_string());
    PC_TRY(group.resync());
    return closed;
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, what_makes_an_array_too_late_is_reported_on_its_rank_and_the_group_goes_on) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    if (group.rank() == 0) {
      fake_.hold_stream(x.stream.get());
      const Status ended = calls->run(sum_of(x), 0.05);
      if (ended.code() != Code::kTimeout || !has(ended, "what makes its array"))
        return wrong(ended.to_string());
      fake_.release_stream(x.stream.get());
    }
    // The first call of rank 1. It is right on rank 0 too, in spite of what the first call left
    // behind.
    PC_TRY(calls->run(sum_of(x), -1));
    PC_TRY(expect(x, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, a_result_that_does_not_reach_the_gpu_is_an_error_in_time) {
  constexpr double kSoon = 0.2;
  std::promise<void*> reads;
  std::promise<void> notified;
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    if (group.rank() == 1) {
      void* const theirs = reads.get_future().get();
      while (fake_.calls("cuEventQuery") == 0)
        std::this_thread::yield();  // rank 0 has queued the copy and queries its event
      fake_.drain(theirs);
      fake_.hold_stream(theirs);  // rank 0 waits for this rank, and its array has been read
      PC_TRY(calls->run(sum_of(x), -1));
      notified.get_future().wait();
      fake_.release_stream(theirs);
      return calls->close(-1);
    }
    PC_ASSIGN_OR_RETURN(const auto impatient, StagedCalls::create(group, driver_, 0, kSoon));
    reads.set_value(x.stream.get());
    const Status ended = impatient->run(sum_of(x), -1);
    notified.set_value();
    if (ended.code() != Code::kTimeout || !has(ended, "has not reached the GPU"))
      return wrong(ended.to_string());
    drain(x);  // memory that the GPU still used was kept
    return expect(x, 3);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, the_death_of_a_rank_ends_the_calls_of_the_others) {
  const Outcomes outcomes = run(
      3,
      [&](Runtime&, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
        PC_TRY(host_sum(group));
        if (group.rank() == 2) return Status::ok();  // its runtime ends without a goodbye
        PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
        const auto started = calls->begin(sum_of(x), -1);
        return started.is_ok() ? started.value()->precede(x.stream.get()) : started.status();
      },
      false);
  for (const std::size_t rank : {0UL, 1UL})
    EXPECT_EQ(outcomes[rank].code(), Code::kPeerFailure) << text_of(outcomes);
}

TEST_P(StagedWorld, what_cannot_be_right_is_refused_before_anything_is_sent) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    if (group.rank() == 0) {
      UserCall call = sum_of(x);
      call.request.in.device.index = call.request.out.device.index = 1;
      Status refused = calls->run(call, -1);
      if (refused.code() != Code::kInvalidArgument || !has(refused, "GPU 0"))
        return wrong(refused.to_string());
      refused = calls->run(message(x, UserCall::Kind::kSend, 2), -1);
      if (refused.code() != Code::kInvalidArgument) return wrong(refused.to_string());
      fake_.begin_capture(x.stream.get());
      refused = calls->run(sum_of(x), -1);
      fake_.end_capture(x.stream.get());
      if (refused.code() != Code::kUnsupported || !has(refused, "CUDA graph"))
        return wrong(refused.to_string());
    }
    PC_TRY(calls->run(sum_of(x), -1));
    PC_TRY(expect(x, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(StagedWorld, the_end_is_notified_once_and_what_arrays_need_is_released) {
  std::atomic<int> notified{0};
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    std::promise<void> first, second;
    UserCall call = sum_of(x);
    call.keeps = std::make_shared<int>(0);
    const std::weak_ptr<const void> kept = call.keeps;
    {
      PC_ASSIGN_OR_RETURN(const auto good,
                          calls->begin(call, -1, [&](const Status&) { ++notified, first.set_value(); }));
      call.keeps = nullptr;
      first.get_future().wait();
      if (!good->done() || !good->ended_well()) return wrong("not done");
    }
    if (!kept.expired()) return wrong("it still keeps its arrays");
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    PC_ASSIGN_OR_RETURN(const auto bad,
                        calls->begin(call, -1, [&](const Status&) { ++notified, second.set_value(); }));
    second.get_future().wait();
    if (!bad->outcome() || bad->ended_well()) return wrong("it has not failed");
    return group.resync();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(notified, 4);
}

TEST_P(StagedWorld, a_call_that_is_not_waited_for_ends_and_its_world_may_end_before_it) {
  std::vector<std::shared_ptr<GpuWork>> left(2);
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, stage(group));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_ASSIGN_OR_RETURN(left[static_cast<std::size_t>(group.rank())], calls->begin(sum_of(x), -1));
    PC_TRY(calls->close(-1));
    return expect(x, 3);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  for (const std::shared_ptr<GpuWork>& each : left) {
    ASSERT_NE(each, nullptr);
    EXPECT_TRUE(each->done());
    EXPECT_TRUE(each->wait(-1).is_ok());
  }
}

}  // namespace
}  // namespace pc::testing
