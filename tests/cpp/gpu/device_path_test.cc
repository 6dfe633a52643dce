// Which path a group's calls on GPU arrays take, from what its ranks report.
#include "gpu/device_path.h"

#include <gtest/gtest.h>

#include <string>

#include "statuses.h"

namespace pc::testing {
namespace {

DeviceFacts facts(const std::string& gpu, int minor = 28, const std::string& host_id = "") {
  DeviceFacts made;
  made.set_gpu(gpu, host_id);
  made.nccl_major = 2;
  made.nccl_minor = minor;
  made.nccl_patch = 9;
  return made;
}

TEST(DevicePath, ranks_with_a_gpu_each_and_one_nccl_go_by_it) {
  const DeviceFacts all[] = {facts("GPU-a"), facts("GPU-b"), facts("GPU-c")};
  EXPECT_TRUE(can_go_by_nccl(all).is_ok());
  EXPECT_TRUE(can_go_by_nccl({all, 1}).is_ok());
}

// NCCL treats ranks with another NCCL_HOSTID as ranks of another host, so that they can share a
// GPU.
TEST(DevicePath, one_gpu_of_two_host_ids_is_two) {
  const std::string host(100, 'h');
  const DeviceFacts apart[] = {facts("GPU-a", 28, host + "1"), facts("GPU-a", 28, host + "2")};
  EXPECT_TRUE(can_go_by_nccl(apart).is_ok());
  const DeviceFacts together[] = {facts("GPU-a", 28, host), facts("GPU-a", 28, host)};
  EXPECT_TRUE(has(can_go_by_nccl(together), "share one GPU, GPU-a"));
}

TEST(DevicePath, obstacles_are_named_with_their_ranks) {
  const DeviceFacts shared[] = {facts("GPU-a"), facts("GPU-b"), facts("GPU-a")};
  EXPECT_TRUE(has(can_go_by_nccl(shared), "rank 0 and rank 2 share one GPU, GPU-a"));
  const DeviceFacts older[] = {facts("GPU-a"), facts("GPU-b", 27)};
  EXPECT_TRUE(has(can_go_by_nccl(older), "rank 0 has NCCL 2.28.9 and rank 1 2.27.9"));
  DeviceFacts bare;
  bare.lacks("no libnccl.so.2 was found");
  bare.lacks("something else");
  const DeviceFacts without[] = {facts("GPU-a"), bare};
  const Status status = can_go_by_nccl(without);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_TRUE(has(status, "rank 1: no libnccl.so.2 was found")) << status.to_string();
}

TEST(DevicePath, texts_of_any_length_end) {
  DeviceFacts made;
  made.set_gpu(std::string(1000, 'u'), std::string(1000, 'h'));
  made.lacks(std::string(1000, 'w'));
  const DeviceFacts all[] = {made};
  EXPECT_LT(can_go_by_nccl(all).message().size(), 500U);
}

}  // namespace
}  // namespace pc::testing
