// A build carries one fat binary for GPUs, small enough for a wheel, that names its architectures;
// or it carries none.
#include "kernels/device/embedded.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace pc {
namespace {

TEST(EmbeddedKernels, are_a_fat_binary_for_the_targets_that_are_named_or_nothing) {
  const std::span<const std::byte> kernels = embedded_kernels();
  ASSERT_EQ(kernels.empty(), embedded_targets().empty());
  if (kernels.empty())
    GTEST_SKIP() << "this build has no kernels for GPUs: there was no nvcc, or it was not wanted";
  struct {
    uint32_t magic;
    uint16_t version, header_nbytes;
    uint64_t nbytes;
  } header;
  ASSERT_GT(kernels.size(), sizeof header);
  std::memcpy(&header, kernels.data(), sizeof header);
  EXPECT_EQ(header.magic, 0xba55ed50);
  EXPECT_EQ(header.header_nbytes + header.nbytes, kernels.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(kernels.data()) % 64, 0u);
  EXPECT_LT(kernels.size(), std::size_t{400'000});
  EXPECT_TRUE(embedded_targets().back().starts_with("compute_"));
  for (const std::string_view target : embedded_targets().first(embedded_targets().size() - 1)) {
    EXPECT_TRUE(target.starts_with("sm_")) << target;
  }
}

}  // namespace
}  // namespace pc
