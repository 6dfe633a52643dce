// The real NCCL on a real GPU, as one rank: which calls it accepts, how they are ordered, and how
// it ends.
#include "gpu/card/gpu.h"
#include "gpu/cuda/stream_values.h"
#include "gpu/nccl/executor.h"
#include "gpu/nccl/library.h"
#include "gpu/nccl/types.h"

namespace pc::testing {
namespace {

class NcclOnGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!stream_) return;
    auto library = nccl::Library::open(nccl::process_environment());
    PC_NEEDS(library);
    RecordProperty("nccl", library.value().to_string());
    resources_.api = library.value().shared_api();
    resources_.clock = &clock_;
    const auto id = nccl::make_unique_id(*resources_.api);
    ASSERT_TRUE(id.is_ok()) << id.status().to_string();
    auto made = nccl::Communicator::init(resources_, {id.value(), 0, 1}, {}, wait_limit());
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    auto gpu = nccl::Executor::Gpu::take(*context_, std::make_shared<cuda::SemaphorePool>());
    ASSERT_TRUE(gpu.is_ok()) << gpu.status().to_string();
    executor_ = std::make_unique<nccl::Executor>(std::move(gpu).value(), std::move(made).value(),
                                                 std::make_shared<Abandoned>());
  }
  void TearDown() override {
    if (executor_) {
      const Status closed = executor_->close(wait_limit());
      EXPECT_TRUE(closed.is_ok()) << closed.to_string();
      executor_.reset();
    }
    GpuTest::TearDown();
  }

  cuda::DeviceCall allreduce(cuda::CUdeviceptr in, cuda::CUdeviceptr out, std::size_t count, DType dtype,
                             const Reduction& how, cuda::CUstream on) const {
    const Device here = {DeviceType::kCuda, 0};
    Request request;
    request.collective = Collective::kAllreduce;
    request.in = {reinterpret_cast<const std::byte*>(in), count, dtype, here};
    request.out = {reinterpret_cast<std::byte*>(out), count, dtype, here};
    request.op = how;
    request.stream = on;
    return {request};
  }
  void finish(const Result<std::shared_ptr<cuda::DeviceWork>>& work) const {
    ASSERT_TRUE(work.is_ok()) << work.status().to_string();
    const Result<WaitEnd> end = work.value()->wait_on_host(wait_limit());
    ASSERT_TRUE(end.is_ok()) << end.status().to_string();
    ASSERT_EQ(end.value(), WaitEnd::kReady);
  }

  nccl::SteadyClock clock_;
  nccl::Resources resources_;
  std::unique_ptr<nccl::Executor> executor_;
};

TEST_F(NcclOnGpu, what_it_reduces_of_one_rank_is_that_ranks_own_array) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg}) {
      if (!nccl::reduced(dtype, {op}).is_ok()) continue;
      for (const std::size_t count : {0UL, 1UL, 7UL, 100'003UL}) {
        std::vector<std::byte> bytes(count * size_of(dtype));
        // 0 and 1 are valid as bools too
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 2);
        const cuda::DeviceMemory in = memory(bytes.size()), out = memory(bytes.size());
        put(in.at(), bytes);
        for (const cuda::CUdeviceptr to : {out.at(), in.at()}) {
          finish(executor_->launch(allreduce(in.at(), to, count, dtype, {op}, stream()), wait_limit()));
          ASSERT_TRUE(get(to, bytes.size()) == bytes) << name_of(dtype) << " " << name_of(op) << " of "
                                                      << count << (to == in.at() ? " in place" : "");
        }
      }
    }
  }
}

TEST_F(NcclOnGpu, a_factor_multiplies_every_element_once_or_nccl_is_not_used) {
  constexpr std::size_t kCount = 100'003;
  std::vector<float> before(kCount), after(kCount);
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i);
  const cuda::DeviceMemory x = memory(4 * kCount);
  put(x.at(), std::as_bytes(std::span(before)));
  const cuda::DeviceCall call =
      allreduce(x.at(), x.at(), kCount, DType::kF32, {ReduceOp::kScaledSum, 0.5}, stream());
  const bool can = executor_->can(call.request).is_ok();
  EXPECT_EQ(can, resources_.api->version >= nccl::Version(2, 29, 7));
  if (!can) return;
  finish(executor_->launch(call, wait_limit()));
  const std::vector<std::byte> bytes = get(x.at(), 4 * kCount);
  std::memcpy(after.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], before[i] / 2);
}

// The producer's stream is blocked when the call is made. A call that did not wait for it would
// read the old array.
TEST_F(NcclOnGpu, a_call_comes_after_what_its_stream_had_and_before_what_waits_for_it) {
  constexpr std::size_t kNbytes = 1 << 20;
  const std::vector<std::byte> old(kNbytes, std::byte{1}), made(kNbytes, std::byte{2});
  const cuda::DeviceMemory x = memory(kNbytes), y = memory(kNbytes), fresh = memory(kNbytes),
                           flag = memory(4);
  auto producer = cuda::Stream::create(*context_);
  ASSERT_TRUE(producer.is_ok()) << producer.status().to_string();
  const cuda::CUstream slow = producer.value().get();
  put(fresh.at(), made);
  for (uint32_t round = 1; round <= 20; ++round) {
    for (const bool on_caller_stream : {false, true}) {
      const uint32_t value = 2 * round + (on_caller_stream ? 1 : 0);
      put(x.at(), old);
      PC_MUST(cuda::await_value(driver(), slow, flag.at(), value));
      PC_MUST(cuda::copy_on_device(driver(), x.at(), fresh.at(), kNbytes, slow));
      cuda::DeviceCall call = allreduce(x.at(), x.at(), kNbytes, DType::kU8, {ReduceOp::kSum}, slow);
      call.on_caller_stream = on_caller_stream;
      const auto work = executor_->launch(call, wait_limit());
      ASSERT_TRUE(work.is_ok()) << work.status().to_string();
      PC_MUST(work.value()->precede(slow));
      PC_MUST(cuda::copy_on_device(driver(), y.at(), x.at(), kNbytes, slow));
      EXPECT_FALSE(work.value()->done());
      PC_MUST(cuda::write_value(driver(), stream(), flag.at(), value));
      finish(work);
      settle(slow);
      ASSERT_TRUE(get(y.at(), kNbytes) == made) << "round " << round << (on_caller_stream ? " in line" : "");
    }
  }
}

TEST_F(NcclOnGpu, after_an_abort_every_call_says_why_and_the_gpu_goes_on) {
  const cuda::DeviceMemory x = memory(4096);
  executor_->abort(Status(Code::kPeerFailure, "rank 1 is gone"), 0);
  const auto work = executor_->launch(
      allreduce(x.at(), x.at(), 1024, DType::kF32, {ReduceOp::kSum}, stream()), wait_limit());
  ASSERT_FALSE(work.is_ok());
  EXPECT_NE(work.status().to_string().find("rank 1 is gone"), std::string::npos) << work.status().to_string();
  executor_.reset();
  put(x.at(), std::vector<std::byte>(4096, std::byte{3}));
  EXPECT_TRUE(get(x.at(), 4096) == std::vector<std::byte>(4096, std::byte{3}));
}

}  // namespace
}  // namespace pc::testing
