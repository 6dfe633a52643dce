// Memory of the device and of the host: allocated, classified and freed.
#include "gpu/cuda/memory.h"

#include <array>
#include <vector>

#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/pointer.h"

namespace pc::cuda {
namespace {

class MemoryTest : public FakeGpu {
 protected:
  PointerInfo info_of(const void* at) {
    return value_of(classify_pointer(*driver, reinterpret_cast<CUdeviceptr>(at)));
  }
};

TEST_F(MemoryTest, of_a_device_is_classified_with_its_allocation) {
  fake.set_device_count(2);
  const Context context = gpu(1);
  const DeviceMemory memory = value_of(DeviceMemory::allocate(context, 10'000));
  const PointerInfo info = value_of(classify_pointer(*driver, memory.at() + 9'999));
  EXPECT_EQ(info.kind, MemoryKind::kDevice);
  EXPECT_EQ(info.device, 1);
  EXPECT_EQ(info.context, context.get());
  EXPECT_EQ(info.base, memory.at());
  EXPECT_EQ(info.nbytes, 10'000U);
  EXPECT_TRUE(info.ipc);
}

TEST_F(MemoryTest, ordinary_memory_is_the_hosts_and_any_address_may_be_queried) {
  const Context context = gpu();
  int here = 0;
  EXPECT_EQ(info_of(&here).kind, MemoryKind::kHost);
  EXPECT_EQ(info_of(&here).device, -1);
  EXPECT_EQ(info_of(nullptr).kind, MemoryKind::kHost);
  EXPECT_EQ(name_of(MemoryKind::kManaged), "managed");
}

TEST_F(MemoryTest, pinned_is_registered_and_can_be_written) {
  const PinnedMemory memory = value_of(PinnedMemory::allocate(gpu(), 4096));
  ASSERT_EQ(memory.bytes().size(), 4096U);
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{7});
  EXPECT_EQ(info_of(memory.bytes().data()).kind, MemoryKind::kRegistered);
  EXPECT_FALSE(info_of(memory.bytes().data()).ipc);
}

TEST_F(MemoryTest, managed_and_pooled_are_distinguished) {
  const ContextGuard current = value_of(gpu().enter());
  EXPECT_EQ(info_of(fake.make_managed(64)).kind, MemoryKind::kManaged);
  const PointerInfo pooled = info_of(fake.make_pooled(64));
  EXPECT_EQ(pooled.kind, MemoryKind::kDevice);
  EXPECT_EQ(pooled.context, nullptr);
  EXPECT_FALSE(pooled.ipc);
  fake.reset();  // no other code frees them
}

TEST_F(MemoryTest, of_the_user_is_registered_while_its_registration_lives) {
  const Context context = gpu();
  std::vector<std::byte> theirs(8192);
  {
    const RegisteredMemory registered = value_of(RegisteredMemory::of(context, theirs));
    EXPECT_TRUE(registered.is_ours());
    EXPECT_EQ(info_of(theirs.data() + 8191).kind, MemoryKind::kRegistered);
  }
  EXPECT_EQ(info_of(theirs.data()).kind, MemoryKind::kHost);
}

TEST_F(MemoryTest, registered_before_stays_registered_afterwards) {
  const Context context = gpu();
  std::vector<std::byte> theirs(8192);
  const RegisteredMemory first = value_of(RegisteredMemory::of(context, theirs));
  {
    const RegisteredMemory second = value_of(RegisteredMemory::of(context, theirs));
    EXPECT_FALSE(second.is_ours());
  }
  EXPECT_EQ(info_of(theirs.data()).kind, MemoryKind::kRegistered);
}

TEST_F(MemoryTest, registered_in_part_only_is_an_error) {
  const Context context = gpu();
  std::vector<std::byte> theirs(8192);
  const RegisteredMemory part = value_of(RegisteredMemory::of(context, std::span(theirs).first(100)));
  const Result<RegisteredMemory> all = RegisteredMemory::of(context, theirs);
  ASSERT_FALSE(all.is_ok());
  EXPECT_HAS(all.status().message(), "cuMemHostRegister(8 KiB)");
}

TEST_F(MemoryTest, that_is_not_there_names_the_size_and_the_gpu) {
  fake.set_memory(1 << 20);
  const Result<DeviceMemory> memory = DeviceMemory::allocate(gpu(), 64UL << 20);
  ASSERT_FALSE(memory.is_ok());
  EXPECT_EQ(memory.status().code(), Code::kSystem);
  EXPECT_HAS(memory.status().message(),
             "cuMemAlloc(64 MiB) on GPU 0, where 1 MiB of 1 MiB are free: out of memory "
             "(CUDA_ERROR_OUT_OF_MEMORY, 2)");
  fake.fail_next("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_HAS(PinnedMemory::allocate(gpu(), 100).status().message(), "cuMemHostAlloc(100 B): out of memory");
}

TEST_F(MemoryTest, is_given_back_once_however_often_it_moves) {
  const Context context = gpu();
  {
    DeviceMemory memory = value_of(DeviceMemory::allocate(context, 64));
    const DeviceMemory moved = std::move(memory);
    EXPECT_EQ(fake.live("device"), 1);
  }
  EXPECT_EQ(fake.live("device"), 0);
  EXPECT_EQ(fake.calls("cuMemFree"), 1);
}

TEST_F(MemoryTest, disturbs_no_context_of_the_caller) {
  fake.set_device_count(2);
  const Context mine = gpu(0), other = gpu(1);
  const ContextGuard current = value_of(mine.enter());
  { const DeviceMemory memory = value_of(DeviceMemory::allocate(other, 64)); }
  CUcontext context = nullptr;
  ASSERT_EQ(driver->cuCtxGetCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, mine.get());
}

}  // namespace
}  // namespace pc::cuda
