// How much memory may still be allocated, read from files in the kernel's format.
#include "shm/available_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bytes.h"

namespace pc {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/memory_room_test.XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root = path;
    write("/proc/meminfo", "MemTotal:  900 kB\nMemAvailable:   204800 kB\nSwapFree:      102400 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  std::string root;
};

TEST_F(AvailableMemory, without_limits_is_what_the_machine_has) {
  EXPECT_EQ(available_memory(root), 300 * kMiB);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available_memory(root), 300 * kMiB);
}

TEST_F(AvailableMemory, is_what_the_tightest_of_the_nested_groups_leaves) {
  write("/proc/self/cgroup", "1:cpu:/job\n0::/job/step\n");
  for (const char* folder : {"/job", "/job/step"}) {
    write(std::string("/sys/fs/cgroup") + folder + "/memory.current", std::to_string(60 * kMiB));
    write(std::string("/sys/fs/cgroup") + folder + "/memory.stat",
          "anon 1\ninactive_file 0\nactive_file 0\n");
  }
  write("/sys/fs/cgroup/job/memory.max", std::to_string(100 * kMiB));
  write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(available_memory(root), 40 * kMiB);
  write("/sys/fs/cgroup/job/step/memory.max", std::to_string(65 * kMiB));
  EXPECT_EQ(available_memory(root), 5 * kMiB);
  write("/sys/fs/cgroup/job/step/memory.max", std::to_string(50 * kMiB));
  EXPECT_EQ(available_memory(root), 0u);
}

TEST_F(AvailableMemory, counts_the_cache_of_files_as_free_and_shared_memory_not) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", std::to_string(100 * kMiB));
  write("/sys/fs/cgroup/memory.current", std::to_string(90 * kMiB));
  write("/sys/fs/cgroup/memory.stat",
        "file 62914560\nshmem 31457280\ninactive_file 20971520\nactive_file 10485760\n");
  EXPECT_EQ(available_memory(root), 40 * kMiB);
}

TEST_F(AvailableMemory, knows_the_first_version_of_control_groups) {
  write("/proc/self/cgroup", "12:pids:/x\n4:cpu,memory:/docker/abc\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(100 * kMiB));
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(90 * kMiB));
  write("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1048576\ntotal_active_file 1048576\n");
  EXPECT_EQ(available_memory(root), 12 * kMiB) << "the path is one outside the container";
}

TEST_F(AvailableMemory, is_unlimited_where_the_kernel_says_nothing) {
  EXPECT_EQ(available_memory(root + "/nowhere"), UINT64_MAX);
}

TEST_F(AvailableMemory, of_this_machine_is_some) {
  EXPECT_GT(available_memory(), kMiB);
  EXPECT_LT(available_memory(), UINT64_MAX);
}

}  // namespace
}  // namespace pc
