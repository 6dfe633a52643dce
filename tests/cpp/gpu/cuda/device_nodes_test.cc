// A process that hides its GPUs, or has none, is a rank without a GPU to the other ranks.
#include "gpu/cuda/device_nodes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pc::cuda {
namespace {

class DeviceNodes : public ::testing::Test {
 protected:
  DeviceNodes() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~DeviceNodes() override { std::filesystem::remove_all(folder_); }
  void make(const std::string& node) { std::ofstream(folder_ + "/" + node).put('x'); }
  bool found(const std::optional<std::string_view>& visible = {}) const {
    return may_have_gpu("", visible, folder_);
  }
  std::string folder_ = "/tmp/pycollective-nodes-XXXXXX";
};

TEST_F(DeviceNodes, a_machine_without_nodes_of_gpus_has_none) {
  EXPECT_FALSE(found());
  make("nvidiactl");
  make("nvidia-uvm");
  EXPECT_FALSE(found());
  EXPECT_FALSE(found("0"));
  make("nvidia3");  // a container has only the fourth GPU
  EXPECT_TRUE(found());
}

TEST_F(DeviceNodes, gpus_are_hidden_by_the_first_name_that_is_none) {
  make("nvidia0");
  make("nvidia1");
  for (const char* visible : {"0", "1", " 1 ,0", "1,-1", "GPU-4c1f", "MIG-4c1f"})
    EXPECT_TRUE(found(visible)) << visible;
  for (const char* visible : {"", " ", "-1", "2", "-1,0", ",0", "NoDevFiles", "none"})
    EXPECT_FALSE(found(visible)) << visible;
}

TEST_F(DeviceNodes, one_node_may_stand_for_several_gpus) {
  make("dxg");
  EXPECT_TRUE(found("7"));
  EXPECT_FALSE(found(""));
}

TEST_F(DeviceNodes, a_driver_that_is_named_needs_no_nodes) {
  EXPECT_TRUE(may_have_gpu("/opt/libcuda.so.1", {}, folder_));
  EXPECT_FALSE(may_have_gpu("/opt/libcuda.so.1", "", folder_));
}

}  // namespace
}  // namespace pc::cuda
