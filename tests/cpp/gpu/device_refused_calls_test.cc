// What a stream sees of a call that not all ranks have made: NaN and no number. FAKES of the driver
// and of NCCL.
#include <gtest/gtest.h>

#include <optional>

#include "device_world.h"
#include "gpu/agreed_calls.h"

namespace pc::testing {
namespace {

class RefusedCalls : public DeviceWorld {
 protected:
  DeviceCalls::Resources waiting(Rank rank) {
    DeviceCalls::Resources with = resources(rank);
    with.semaphores = std::make_shared<cuda::SemaphorePool>();
    return with;
  }
  // Two ranks make different NCCL calls, which move data nevertheless. `y` gets what the stream
  // sees after the call. Then `look(x, y)` runs on ranks that had ordered their stream after the
  // call before it was refused.
  Status refuse(Communicator& group, bool on_caller_stream,
                const std::function<Status(Array& x, Array& y)>& look) {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, waiting(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank()));
    cuda::DeviceCall call = x.sum();
    call.on_caller_stream = on_caller_stream;
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    PC_TRY(host_sum(group));  // both ranks have their arrays
    const auto started = calls->launch(call, -1);
    bool goes_past = started.is_ok();
    if (goes_past && !on_caller_stream) {
      const std::optional<Status> behind =
          started.value()->precede({Deadline(TimePoint::max())}, x.stream.get());
      goes_past = behind && behind->is_ok();
    }
    PC_TRY(copy(y, x, x.stream.get()));
    const Status ended = started.is_ok() ? started.value()->wait(-1) : started.status();
    if (ended.code() != Code::kMismatch) return wrong("no mismatch: " + ended.to_string());
    drain(x);
    if (goes_past) PC_TRY(look(x, y));
    return group.resync();
  }
  Outcomes run_refused(bool on_caller_stream, const std::function<Status(Array& x, Array& y)>& look) {
    Outcomes outcomes =
        run(2, [&](Runtime&, Communicator& group) { return refuse(group, on_caller_stream, look); });
    nccl_->reset();  // the fake has detected it too, which real NCCL would not
    nccl_->run_in_streams(reinterpret_cast<void*>(fake_.enqueue));
    return outcomes;
  }
};
INSTANTIATE_TEST_SUITE_P(Over, RefusedCalls, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(RefusedCalls, give_nan_before_their_stream_goes_on) {
  for (const bool on_caller_stream : {true, false}) {
    const Outcomes outcomes = run_refused(on_caller_stream, [&](Array& x, Array& y) {
      return is_nan(x) && is_nan(y) ? Status::ok()
                                    : wrong("the stream has seen " + std::to_string(*y.begin()));
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

// An abort frees memory, for which the driver waits until all streams have completed their queued
// work.
TEST_P(RefusedCalls, are_filled_before_nccl_is_aborted) {
  nccl_->on_abort([](void* fake) { static_cast<const FakeCuda*>(fake)->drain_all(); },
                  const_cast<FakeCuda*>(&fake_));
  const Outcomes outcomes = run_refused(
      true, [&](Array&, Array& y) { return is_nan(y) ? Status::ok() : wrong(std::to_string(*y.begin())); });
  nccl_->on_abort(nullptr, nullptr);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// The end of the second call is queued after the stream's wait for the first.
TEST_P(RefusedCalls, of_which_several_stand_on_one_stream_are_all_filled) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, waiting(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    PC_ASSIGN_OR_RETURN(Array y, array_of(group.rank()));
    // Rank 1 makes none of the calls, and stays until rank 0 has seen all of them refused.
    if (group.rank() == 1) {
      const Status ended = host_sum(group);
      return ended.code() == Code::kMismatch ? group.resync() : wrong("no mismatch: " + ended.to_string());
    }
    fake_.hold_stream(x.stream.get());  // so that all are queued before either rank detects the mismatch
    std::vector<std::shared_ptr<GpuWork>> started;
    for (int i = 0; i < 3; ++i) {
      cuda::DeviceCall call = x.sum();
      call.on_caller_stream = true;
      if (auto each = calls->launch(call, -1); each.is_ok()) started.push_back(std::move(each).value());
    }
    PC_TRY(copy(y, x, x.stream.get()));
    fake_.release_stream(x.stream.get());
    for (const auto& each : started) {
      if (const Status ended = each->wait(-1); ended.code() != Code::kMismatch)
        return wrong(ended.to_string());
    }
    drain(x);
    if (!started.empty() && !is_nan(y)) return wrong("the stream has seen " + std::to_string(*y.begin()));
    return group.resync();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(RefusedCalls, hold_no_stream_where_the_driver_fills_nothing) {
  // The first two of these calls succeed, so that both ranks can join.
  fake_.fail_after("cuMemsetD8Async", 2, cuda::CUDA_ERROR_UNKNOWN);
  const Outcomes outcomes = run_refused(true, [](Array&, Array&) { return Status::ok(); });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(RefusedCalls, are_errors_where_streams_cannot_wait_for_memory) {
  fake_.hide("cuStreamWaitValue32");
  driver_ = cuda::open_driver({FAKE_CUDA}).value();
  const Outcomes outcomes = run_refused(true, [](Array&, Array&) { return Status::ok(); });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(fake_.calls("cuStreamWriteValue32"), 0);
}

TEST_P(RefusedCalls, are_refused_when_they_are_captured) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, waiting(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    cuda::DeviceCall call = x.sum();
    call.on_caller_stream = true;
    if (group.rank() == 1) call.request.op.op = ReduceOp::kProd;
    PC_TRY(host_sum(group));  // no rank allocates memory while another captures
    fake_.begin_capture(x.stream.get());
    const Status captured = calls->launch(call, -1).status();
    const int operations = fake_.end_capture(x.stream.get());
    if (captured.code() != Code::kMismatch) return wrong("no mismatch: " + captured.to_string());
    if (operations != 0) return wrong("the graph has " + std::to_string(operations) + " operations");
    PC_TRY(group.resync());
    cuda::DeviceCall next = x.sum();  // no stream waits for the refused call
    next.on_caller_stream = true;
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(next, -1));
    PC_TRY(started->wait(-1));
    drain(x);
    PC_TRY(expect(x, 3));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

class Agreed : public ::testing::Test {
 protected:
  void SetUp() override { fake_.reset(); }
  void TearDown() override { fake_.reset(); }
  std::shared_ptr<cuda::TimelineSemaphore> take() {
    const auto driver = cuda::open_driver({FAKE_CUDA}).value();
    return pool_.take(cuda::Context::primary(driver, 0).value()).value();
  }
  const FakeCuda fake_ = FakeCuda::at(FAKE_CUDA);
  cuda::SemaphorePool pool_;
};

TEST_F(Agreed, streams_go_on_when_a_call_and_all_before_it_are) {
  const auto semaphore = take();
  const uint32_t before = semaphore->value();
  AgreedCalls calls(semaphore);
  const uint32_t first = *calls.begin(), second = *calls.begin(), third = *calls.begin();
  EXPECT_FALSE(semaphore->has_reached(first));
  calls.agree(second);
  EXPECT_EQ(semaphore->value(), before);
  calls.agree(first);
  EXPECT_TRUE(semaphore->has_reached(second));
  EXPECT_FALSE(semaphore->has_reached(third));
  EXPECT_EQ(calls.stop(), third);
  calls.agree(third);
  EXPECT_FALSE(semaphore->has_reached(third));
}

TEST_F(Agreed, a_semaphore_that_is_taken_again_never_counts_back) {
  auto semaphore = take();
  semaphore->signal(semaphore->value() + 0xfffffff0U);  // the counter wraps around
  const uint32_t left = semaphore->value();
  semaphore.reset();
  semaphore = take();
  EXPECT_EQ(semaphore->value(), left);
  AgreedCalls calls(semaphore);
  for (int i = 0; i < 40; ++i) {
    const uint32_t number = *calls.begin();
    EXPECT_FALSE(semaphore->has_reached(number));
    calls.agree(number);
    EXPECT_TRUE(semaphore->has_reached(number));
  }
}

TEST_F(Agreed, one_page_serves_many_groups) {
  std::vector<std::shared_ptr<cuda::TimelineSemaphore>> all;
  for (int i = 0; i < 64; ++i) all.push_back(take());
  EXPECT_EQ(fake_.live("pinned"), 1);
  all.clear();
  (void)take();
  EXPECT_EQ(fake_.live("pinned"), 1);
}

}  // namespace
}  // namespace pc::testing
