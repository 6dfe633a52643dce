// Every reduction of the CPU has a kernel, every kernel is used, and a reduction without a kernel
// is refused with a message.
#include "kernels/device/kernel_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "device_kernels/cpu_launch.h"
#include "kernels/reduce.h"

namespace pc {
namespace {

TEST(KernelChoice, what_the_cpu_can_reduce_has_a_kernel_and_nothing_else_has) {
  const std::vector<std::string_view> listed = reduce_kernels();
  const std::set<std::string, std::less<>> names(listed.begin(), listed.end());
  std::set<std::string> used;
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const DType dtype = static_cast<DType>(d);
      const ReduceOp op = static_cast<ReduceOp>(o);
      const auto kernel = reduce_kernel(dtype, op);
      const std::string what = std::string(name_of(op)) + " of " + std::string(name_of(dtype));
      EXPECT_EQ(kernel.has_value(), can_reduce(dtype, op)) << what;
      if (!kernel) continue;
      EXPECT_TRUE(names.contains(*kernel)) << what << " wants " << *kernel;
      used.insert(*kernel);
    }
  }
  for (const std::string_view name : listed)
    EXPECT_TRUE(used.contains(std::string(name))) << name << " is of no use";
}

alignas(64) std::byte places[16][64];

Status refusal(std::size_t sources, std::size_t outputs, DType dtype, ReduceOp op, std::size_t offset = 0) {
  std::vector<const void*> from(sources, places[0] + offset);
  std::vector<void*> to(outputs, places[1]);
  return reduce_arguments({from, to, 2, dtype, op}).status();
}

TEST(KernelChoice, what_no_kernel_can_do_is_refused_with_the_reason) {
  using enum ReduceOp;
  EXPECT_EQ(refusal(2, 1, DType::kC64, kMin).message(), "there is no min of complex64 (docs/dtypes.md)");
  EXPECT_EQ(refusal(2, 1, DType::kC64, kMin).code(), Code::kUnsupported);
  EXPECT_EQ(refusal(9, 1, DType::kF32, kSum).message(), "a kernel takes 1 to 8 sources, not 9");
  EXPECT_EQ(refusal(0, 1, DType::kF32, kSum).message(), "a kernel takes 1 to 8 sources, not 0");
  EXPECT_EQ(refusal(2, 9, DType::kF32, kSum).message(), "a kernel takes 1 to 8 outputs, not 9");
  EXPECT_EQ(refusal(2, 1, DType::kF32, kSum, 2).message(),
            "float32 in a GPU's memory must be aligned to 4 bytes: copy the array");
  EXPECT_TRUE(refusal(2, 1, DType::kC64, kSum, 4).is_ok());
  EXPECT_TRUE(refusal(2, 1, DType::kF16, kSum, 2).is_ok());
  const void* const from[] = {places[0], places[1]};
  void* const to[] = {places[2]};
  const uint32_t one[] = {1};
  EXPECT_EQ(reduce_arguments({from, to, 2, DType::kF32, kSum, one}).status().message(),
            "1 numbers of contributions for 2 sources");
  EXPECT_FALSE(copy_arguments({}, places[0], 1).is_ok());
}

TEST(KernelChoice, a_launch_has_a_thread_for_each_vector_until_the_gpu_is_full) {
  EXPECT_EQ(launch_shape(0, 132).blocks, 1u);
  EXPECT_EQ(launch_shape(8192, 132).blocks, 1u);
  EXPECT_EQ(launch_shape(8193, 132).blocks, 2u);
  EXPECT_EQ(launch_shape(264 * 8192, 132).blocks, 264u);
  EXPECT_EQ(launch_shape(1000 * 8192, 132).blocks, 264u);
  EXPECT_EQ(launch_shape(2000 * 8192, 132).blocks, 500u);
  EXPECT_EQ(launch_shape(std::size_t{1} << 40, 132).blocks, 1u << 20);
  EXPECT_EQ(launch_shape(100, 0).blocks, 1u);
  EXPECT_EQ(launch_shape(1, 1).threads, device::kThreads);
}

}  // namespace
}  // namespace pc
