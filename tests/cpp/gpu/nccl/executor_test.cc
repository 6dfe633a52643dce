// Calls on device arrays: in which order they run, what they keep alive and for how long, and how
// they end. FAKES of the driver and of NCCL.
#include "gpu/nccl/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "fakes/cuda/fake_cuda.h"
#include "gpu/cuda/copy.h"
#include "gpu/nccl/fake_library.h"

namespace pc::nccl::testing {
namespace {

constexpr std::size_t kCount = 1000, kNbytes = kCount * sizeof(float);

class NcclExecutor : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.reset();
    begin();
    nccl_->run_in_streams(reinterpret_cast<void*>(fake_.enqueue));
  }
  // Opens the driver in its current state.
  void begin() {
    theirs_.reset();
    current_.reset();
    driver_ = cuda::open_driver({FAKE_CUDA}).value();
    context_.emplace(cuda::Context::primary(driver_, 0).value());
    current_.emplace(context_->enter().value());
    theirs_.emplace(cuda::Stream::create(*context_).value());
  }
  void TearDown() override {
    executor_.reset();
    fake_.drain_all();
    abandoned_.reset();
    theirs_.reset();
    current_.reset();
    fake_.reset();
  }

  WaitContext wait_limit() const { return {Deadline::after(20)}; }
  static WaitContext none() { return {Deadline::after(0)}; }
  std::unique_ptr<Executor> join(const UniqueId& id, Rank rank, Rank size) {
    const Resources resources{nccl_.shared_api(), &clock_};
    auto made = Communicator::init(resources, {id, rank, size}, {}, wait_limit());
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    auto gpu = Executor::Gpu::take(*context_, std::make_shared<cuda::SemaphorePool>());
    return std::make_unique<Executor>(std::move(gpu).value(), std::move(made).value(), abandoned_);
  }
  void join_alone() { executor_ = join(make_unique_id(nccl_.api()).value(), 0, 1); }
  void close() {
    const Status closed = executor_->close(wait_limit());
    EXPECT_TRUE(closed.is_ok()) << closed.to_string();
  }

  cuda::DeviceMemory memory_of(float value) {
    cuda::DeviceMemory memory = cuda::DeviceMemory::allocate(*context_, kNbytes).value();
    float* const begin = reinterpret_cast<float*>(memory.at());  // the fake's memory is the host's
    std::fill(begin, begin + kCount, value);
    return memory;
  }
  static float first(const cuda::DeviceMemory& memory) {
    float value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(memory.at()), sizeof value);
    return value;
  }
  cuda::DeviceCall allreduce(const cuda::DeviceMemory& in, const cuda::DeviceMemory& out,
                             bool on_caller_stream = false) {
    const Device here = {DeviceType::kCuda, 0};
    cuda::DeviceCall call;
    call.request.collective = Collective::kAllreduce;
    call.request.in = {reinterpret_cast<const std::byte*>(in.at()), kCount, DType::kF32, here};
    call.request.out = {reinterpret_cast<std::byte*>(out.at()), kCount, DType::kF32, here};
    call.request.stream = theirs_->get();
    call.on_caller_stream = on_caller_stream;
    return call;
  }
  std::shared_ptr<cuda::DeviceWork> launch(cuda::DeviceCall call) {
    EXPECT_TRUE(executor_->ready(call).is_ok());
    auto work = executor_->launch(call, wait_limit());
    EXPECT_TRUE(work.is_ok()) << work.status().to_string();
    return work.is_ok() ? work.value() : nullptr;
  }
  void expect_end(cuda::DeviceWork& work) {
    const Result<WaitEnd> end = work.wait_on_host(wait_limit());
    ASSERT_TRUE(end.is_ok()) << end.status().to_string();
    EXPECT_EQ(end.value(), WaitEnd::kReady);
    EXPECT_TRUE(work.done());
  }

  const FakeCuda fake_ = FakeCuda::at(FAKE_CUDA);
  FakeLibrary nccl_{FAKE_NCCL_22809};
  SteadyClock clock_;
  std::shared_ptr<const cuda::Driver> driver_;
  std::optional<cuda::Context> context_;
  std::optional<cuda::ContextGuard> current_;
  std::optional<cuda::Stream> theirs_;
  std::shared_ptr<Abandoned> abandoned_ = std::make_shared<Abandoned>();
  std::unique_ptr<Executor> executor_;
};

TEST_F(NcclExecutor, a_call_comes_after_what_its_stream_had_and_before_what_waits_for_it) {
  join_alone();
  for (const bool on_caller_stream : {false, true}) {
    const cuda::DeviceMemory x = memory_of(1), fresh = memory_of(2), result = memory_of(0),
                             later = memory_of(0);
    fake_.hold_stream(theirs_->get());
    ASSERT_TRUE(cuda::copy_on_device(*driver_, x.at(), fresh.at(), kNbytes, theirs_->get()).is_ok());
    const auto work = launch(allreduce(x, result, on_caller_stream));
    ASSERT_TRUE(work->precede(theirs_->get()).is_ok());
    ASSERT_TRUE(cuda::copy_on_device(*driver_, later.at(), result.at(), kNbytes, theirs_->get()).is_ok());
    EXPECT_FALSE(work->done());
    EXPECT_EQ(work->wait_on_host(none()).value(), WaitEnd::kTimeout);
    EXPECT_EQ(first(result), 0);
    fake_.release_stream(theirs_->get());
    expect_end(*work);
    fake_.drain(theirs_->get());
    EXPECT_EQ(first(result), 2);
    EXPECT_EQ(first(later), 2);
  }
  close();
}

TEST_F(NcclExecutor, polling_many_calls_takes_few_event_queries) {
  join_alone();
  constexpr int kCalls = 200, kDone = 130;
  const cuda::DeviceMemory x = memory_of(1);
  fake_.hold_stream(theirs_->get());
  std::vector<std::shared_ptr<cuda::DeviceWork>> works;
  for (int i = 0; i < kCalls; ++i) works.push_back(launch(allreduce(x, x, true)));
  const int in_all = fake_.queued(theirs_->get());
  fake_.step(theirs_->get(), in_all / kCalls * kDone);
  const int before = fake_.calls("cuEventQuery");
  EXPECT_TRUE(executor_->poll_all().is_ok());
  EXPECT_LE(fake_.calls("cuEventQuery") - before, 10);
  EXPECT_EQ(executor_->running(), std::size_t{kCalls - kDone});
  for (int i = 0; i < kCalls; ++i)
    EXPECT_EQ(works[static_cast<std::size_t>(i)]->seen().has_value(), i < kDone);
  EXPECT_LE(fake_.calls("cuEventQuery") - before, 10);
  fake_.release_stream(theirs_->get());
  expect_end(*works.back());
  EXPECT_TRUE(executor_->poll_all().is_ok());
  EXPECT_EQ(executor_->running(), 0U);
  close();
}

TEST_F(NcclExecutor, without_stream_ids_each_call_has_an_event_query) {
  fake_.hide("cuStreamGetId");
  begin();
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  const auto first = launch(allreduce(x, x, true)), second = launch(allreduce(x, x, true));
  fake_.drain(theirs_->get());
  const int before = fake_.calls("cuEventQuery");
  EXPECT_TRUE(executor_->poll_all().is_ok());
  EXPECT_EQ(fake_.calls("cuEventQuery") - before, 2);
  EXPECT_TRUE(first->seen() && second->seen());
  close();
}

TEST_F(NcclExecutor, a_failed_event_query_releases_no_other_call) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  fake_.hold_stream(theirs_->get());
  std::vector<std::weak_ptr<const int>> kept;
  for (int i = 0; i < 8; ++i) {
    cuda::DeviceCall call = allreduce(x, x, true);
    const auto keeps = std::make_shared<const int>(i);
    kept.emplace_back(keeps);
    call.keeps = keeps;
    (void)launch(call);
  }
  fake_.fail_next("cuEventQuery", cuda::CUDA_ERROR_INVALID_VALUE);
  (void)executor_->poll_all();
  EXPECT_LE(std::count_if(kept.begin(), kept.end(), [](const auto& each) { return each.expired(); }), 1);
  fake_.release_stream(theirs_->get());
  fake_.drain_all();
  close();
}

// The blocks of NCCL's kernel would share 100'003 floats unevenly, and NCCL 2.28 loses the last
// three.
TEST_F(NcclExecutor, one_rank_averages_all_of_its_array_and_scales_none_that_nccl_would_scale_in_part) {
  join_alone();
  constexpr std::size_t kMany = 100'003;
  const std::vector<float> ones(kMany, 1);
  const cuda::DeviceMemory x = cuda::DeviceMemory::allocate(*context_, 4 * kMany).value();
  const cuda::DeviceMemory y = cuda::DeviceMemory::allocate(*context_, 4 * kMany).value();
  std::memcpy(reinterpret_cast<void*>(x.at()), ones.data(), 4 * kMany);
  std::memset(reinterpret_cast<void*>(y.at()), 0, 4 * kMany);
  cuda::DeviceCall call = allreduce(x, y);
  call.request.in.count = call.request.out.count = kMany;
  call.request.op = {ReduceOp::kAvg};
  expect_end(*launch(call));
  EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(y.at()), ones.data(), 4 * kMany), 0);
  call.request.op = {ReduceOp::kScaledSum, 0.5};
  EXPECT_EQ(executor_->can(call.request).code(), Code::kUnsupported);
  close();
}

TEST_F(NcclExecutor, what_a_call_keeps_is_released_once_its_end_has_been_seen) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  auto kept = std::make_shared<int>(7);
  const std::weak_ptr<int> alive = kept;
  cuda::DeviceCall call = allreduce(x, x);
  call.keeps = std::move(kept);
  fake_.hold_stream(theirs_->get());
  launch(call);  // and no variable holds its work
  call.keeps = nullptr;
  EXPECT_TRUE(executor_->poll_all().is_ok());
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(executor_->running(), 1U);
  fake_.release_stream(theirs_->get());
  fake_.drain_all();
  EXPECT_TRUE(executor_->poll_all().is_ok());
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(executor_->running(), 0U);
  close();
}

// A call on another stream than the captured one can only be tested on a GPU: the fake's captures
// have one stream.
TEST_F(NcclExecutor, a_call_in_a_graph_runs_when_the_graph_does_and_cannot_be_waited_for) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(3), result = memory_of(0);
  fake_.begin_capture(theirs_->get());
  const auto work = launch(allreduce(x, result, true));
  ASSERT_NE(work, nullptr);
  EXPECT_GE(fake_.end_capture(theirs_->get()), 2) << "the capture was spoiled";
  EXPECT_EQ(work->wait_on_host(wait_limit()).status().code(), Code::kUnsupported);
  EXPECT_FALSE(work->done());
  EXPECT_EQ(executor_->running(), 0U);
  fake_.drain_all();
  EXPECT_EQ(first(result), 0);
  fake_.replay(theirs_->get());
  fake_.drain_all();
  EXPECT_EQ(first(result), 3);
  close();
}

TEST_F(NcclExecutor, several_ranks_get_the_sum) {
  for (const Rank size : {1, 2, 3, 4}) {
    const UniqueId id = make_unique_id(nccl_.api()).value();
    std::vector<std::thread> ranks;
    for (Rank rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto executor = join(id, rank, size);
        const cuda::DeviceMemory x = memory_of(static_cast<float>(rank + 1));
        auto work = executor->launch(allreduce(x, x), wait_limit());
        ASSERT_TRUE(work.is_ok()) << work.status().to_string();
        expect_end(*work.value());
        const Status closed = executor->close(wait_limit());
        EXPECT_TRUE(closed.is_ok()) << closed.to_string();
        EXPECT_EQ(first(x), static_cast<float>(size * (size + 1)) / 2) << "rank " << rank << " of " << size;
      });
    }
    for (std::thread& each : ranks) each.join();
  }
}

TEST_F(NcclExecutor, an_abort_ends_every_call_with_its_reason_and_releases_when_the_gpu_does) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  auto kept = std::make_shared<int>(7);
  const std::weak_ptr<int> alive = kept;
  cuda::DeviceCall call = allreduce(x, x);
  call.keeps = std::move(kept);
  fake_.hold_stream(theirs_->get());
  const auto work = launch(call);
  call.keeps = nullptr;
  executor_->abort(Status(Code::kPeerFailure, "rank 1 is gone"), 0);
  EXPECT_NE(work->wait_on_host(wait_limit()).status().to_string().find("rank 1 is gone"), std::string::npos);
  EXPECT_FALSE(executor_->poll_all().is_ok());
  EXPECT_FALSE(alive.expired()) << "the GPU may still use it";
  const auto next = executor_->launch(call, wait_limit());
  ASSERT_FALSE(next.is_ok());
  EXPECT_NE(next.status().to_string().find("rank 1 is gone"), std::string::npos);
  fake_.release_stream(theirs_->get());
  fake_.drain_all();
  EXPECT_FALSE(work->wait_on_host(wait_limit()).is_ok()) << "what an aborted call left is not a result";
  EXPECT_FALSE(executor_->poll_all().is_ok());
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(executor_->running(), 0U);
}

TEST_F(NcclExecutor, an_error_that_nccl_finds_later_ends_the_wait) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  fake_.hold_stream(theirs_->get());
  const auto work = launch(allreduce(x, x));
  void* comm = nullptr;
  ASSERT_EQ(nccl_->last_comm(&comm), 1);
  nccl_->async_error(comm, static_cast<int>(ReturnCode::kRemoteError));
  const Result<WaitEnd> end = work->wait_on_host(wait_limit());
  ASSERT_FALSE(end.is_ok());
  EXPECT_NE(end.status().to_string().find("ncclRemoteError"), std::string::npos) << end.status().to_string();
  executor_->abort(end.status(), 0);
  fake_.release_stream(theirs_->get());
  fake_.drain_all();
  (void)executor_->poll_all();
}

TEST_F(NcclExecutor, closing_waits_for_what_runs_but_not_beyond_its_deadline) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  fake_.hold_stream(theirs_->get());
  launch(allreduce(x, x));
  const Status early = executor_->close(none());
  EXPECT_EQ(early.code(), Code::kTimeout) << early.to_string();
  fake_.release_stream(theirs_->get());
  close();
  EXPECT_EQ(executor_->running(), 0U);
  EXPECT_EQ(nccl_->alive(), 0);
  EXPECT_FALSE(executor_->launch(allreduce(x, x), wait_limit()).is_ok());
}

TEST_F(NcclExecutor, a_split_waits_for_what_runs_but_not_beyond_its_deadline) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  fake_.hold_stream(theirs_->get());
  const auto work = launch(allreduce(x, x));
  EXPECT_EQ(executor_->split(0, 0, none()).status().code(), Code::kTimeout);
  EXPECT_EQ(nccl_.calls_of_newest(), "child(0/1) [AllReduce]");  // and nothing has run
  fake_.release_stream(theirs_->get());
  auto child = executor_->split(0, 0, wait_limit());
  ASSERT_TRUE(child.is_ok()) << child.status().to_string();
  EXPECT_TRUE(work->done());
  const auto of_child = child.value()->launch(allreduce(x, x), wait_limit());
  ASSERT_TRUE(of_child.is_ok()) << of_child.status().to_string();
  close();  // the child continues without its parent
  expect_end(*of_child.value());
  EXPECT_TRUE(child.value()->close(wait_limit()).is_ok());
  EXPECT_STREQ(nccl_->record(),
               "init(0/1) Split(0) Finalize Destroy\nchild(0/1) [AllReduce] Split(0) Finalize Destroy\n"
               "child(0/1) [AllReduce] Finalize Destroy\n");
}

TEST_F(NcclExecutor, a_rank_without_color_takes_part_in_a_split_and_gets_no_child) {
  join_alone();
  const auto child = executor_->split(kNoColor, 0, wait_limit());
  ASSERT_TRUE(child.is_ok()) << child.status().to_string();
  EXPECT_EQ(child.value(), nullptr);
  close();
  EXPECT_EQ(nccl_.calls_of_newest(), "child(0/1) Split(-1) Finalize Destroy");
}

TEST_F(NcclExecutor, what_nccl_cannot_do_is_refused_before_anything_is_queued) {
  join_alone();
  const cuda::DeviceMemory x = memory_of(1);
  cuda::DeviceCall call = allreduce(x, x);
  call.request.collective = Collective::kScan;
  fake_.hold_stream(theirs_->get());
  EXPECT_EQ(executor_->launch(call, wait_limit()).status().code(), Code::kUnsupported);
  EXPECT_EQ(fake_.queued(theirs_->get()), 0);
  fake_.release_stream(theirs_->get());
  close();
}

}  // namespace
}  // namespace pc::nccl::testing
