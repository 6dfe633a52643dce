// Calls on arrays on a GPU with full memory: all ranks take another path or report what is missing,
// and the group continues. FAKES of the driver and of NCCL.
#include <gtest/gtest.h>

#include "device_world.h"

namespace pc::testing {
namespace {

class FullMemory : public DeviceWorld {
 protected:
  static constexpr std::size_t kAll_nbytes = std::size_t{1} << 30, kFree_nbytes = std::size_t{10} << 20;
  // Allocates all but 10 MiB of the rank's GPU.
  Result<cuda::DeviceMemory> fill(Rank rank) {
    PC_ASSIGN_OR_RETURN(const cuda::Context context, cuda::Context::primary(driver_, rank));
    return cuda::DeviceMemory::allocate(context, kAll_nbytes - kFree_nbytes);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, FullMemory, ::testing::Values(Over::kInproc, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(FullMemory, of_one_rank_keeps_all_from_nccl_and_the_group_goes_on) {
  fake_.set_memory(kAll_nbytes);
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    std::optional<cuda::DeviceMemory> taken;
    if (group.rank() == 1) {
      PC_ASSIGN_OR_RETURN(cuda::DeviceMemory memory, fill(1));
      taken.emplace(std::move(memory));
    }
    const Status joined = join(group, resources(group.rank())).status();
    if (joined.code() != Code::kUnsupported || !has(joined, "rank 1: its GPU's memory is full") ||
        !has(joined, "10 MiB of 1024 MiB are free"))
      return wrong(joined.to_string());
    return host_sum(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(nccl_->alive(), 0);
}

TEST_P(FullMemory, fails_the_barrier_of_one_rank_before_it_is_sent_and_the_next_one_succeeds) {
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const auto calls, join(group, resources(group.rank())));
    PC_ASSIGN_OR_RETURN(Array x, array_of(group.rank()));
    cuda::DeviceCall barrier;
    barrier.request.stream = x.stream.get();
    PC_TRY(host_sum(group));  // both ranks have filled their GPU
    for (const char* const function : {"cuEventCreate", "cuMemAlloc"}) {
      if (group.rank() != 0) continue;
      fake_.fail_next(function, cuda::CUDA_ERROR_OUT_OF_MEMORY);
      const Status failed = calls->launch(barrier, -1).status();
      if (!has(failed, std::string(function)) || !has(failed, "out of memory"))
        return wrong(failed.to_string());
    }
    PC_TRY(host_sum(group));
    PC_ASSIGN_OR_RETURN(const auto started, calls->launch(barrier, -1));
    PC_TRY(started->wait(-1));
    return calls->close(-1);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(FullMemory, that_nccl_finds_is_reported_with_its_error_name) {
  nccl_->fail_next("CommInitRankConfig", 1, 0);
  const Outcomes outcomes = run(
      1, [&](Runtime&, Communicator& group) { return join(group, resources(0)).status(); }, false);
  EXPECT_TRUE(has(outcomes[0], "ncclUnhandledCudaError")) << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[0], "of the memory of GPU 0, 1024 MiB of 1024 MiB are free")) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
