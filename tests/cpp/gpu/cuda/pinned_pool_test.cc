// Pinned memory is reused, and never while the GPU uses it.
#include "gpu/cuda/pinned_pool.h"

#include <optional>
#include <utility>

#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/stream.h"

namespace pc::cuda {
namespace {

class PinnedPoolTest : public FakeGpu {};

TEST_F(PinnedPoolTest, a_free_block_is_reused_for_a_size_that_fits) {
  const Context context = gpu();
  PinnedPool pool(context);
  std::byte* first = nullptr;
  {
    PinnedPool::Lease lease = value_of(pool.take(5000));
    EXPECT_GE(lease.bytes().size(), 5000U);
    first = lease.bytes().data();
  }
  EXPECT_EQ(value_of(pool.take(8192)).bytes().data(), first);
  const PinnedPool::Lease small = value_of(pool.take(0)), large = value_of(pool.take(9000));
  EXPECT_EQ(small.bytes().data(), first);
  EXPECT_NE(large.bytes().data(), first);
  EXPECT_EQ(fake.live("pinned"), 2);
}

TEST_F(PinnedPoolTest, a_block_that_the_gpu_still_uses_is_not_reused) {
  const Context context = gpu();
  PinnedPool pool(context);
  EventPool events(context);
  const Stream stream = value_of(Stream::create(context));
  const ContextGuard current = value_of(context.enter());
  fake.hold_stream(stream.get());
  std::byte* busy = nullptr;
  {
    PinnedPool::Lease lease = value_of(pool.take(100));
    busy = lease.bytes().data();
    EventPool::Lease end = value_of(events.take());
    ASSERT_TRUE(record(context.driver(), end.get(), stream.get()).is_ok());
    EXPECT_TRUE(lease.is_free());
    lease.busy_until(std::move(end));
    EXPECT_FALSE(lease.is_free());
  }
  EXPECT_NE(value_of(pool.take(100)).bytes().data(), busy);
  fake.release_stream(stream.get());
  fake.drain(stream.get());
  const PinnedPool::Lease one = value_of(pool.take(100)), two = value_of(pool.take(100));
  EXPECT_TRUE(one.bytes().data() == busy || two.bytes().data() == busy);
  EXPECT_EQ(fake.live("pinned"), 2);
}

TEST_F(PinnedPoolTest, all_is_freed_once_the_pool_and_its_leases_are_destroyed) {
  std::optional<PinnedPool> pool(gpu());
  {
    const PinnedPool::Lease lease = value_of(pool->take(100));
    pool.reset();
    EXPECT_EQ(fake.live("pinned"), 1);
  }
  EXPECT_EQ(fake.live("pinned"), 0);
}

TEST_F(PinnedPoolTest, no_memory_is_an_error_that_says_how_much) {
  const Context context = gpu();
  PinnedPool pool(context);
  fake.fail_next("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  const auto refused = pool.take(1 << 20);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_HAS(refused.status().message(), "1 MiB");
}

}  // namespace
}  // namespace pc::cuda
