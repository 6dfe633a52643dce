// One process reads another's private memory, as long as that process exists.
#include "shm/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <vector>

#include "bytes.h"

namespace pc {
namespace {

constexpr std::size_t kNbytes = 3 * kMiB + 17;

TEST(ProcessMemory, a_living_process_s_array_is_read_and_a_dead_one_s_is_not) {
  const std::vector<std::byte> bytes = pattern(kNbytes, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();  // the child has a copy of the parent's memory at the same addresses
  }
  std::vector<std::byte> here(bytes.size());
  const uint64_t address = reinterpret_cast<uintptr_t>(bytes.data());
  const Status read = read_process_memory(child, address, here);
  const Status nowhere = read_process_memory(child, 64, std::span(here).first(64));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (read.code() == Code::kUnsupported)
    GTEST_SKIP() << read.to_string();  // the reason that PYCOLLECTIVE_SINGLE_COPY=auto finds
  ASSERT_TRUE(read.is_ok()) << read.to_string();
  EXPECT_EQ(std::memcmp(here.data(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(nowhere.code(), Code::kSystem) << nowhere.to_string();
  EXPECT_EQ(read_process_memory(child, address, here).code(), Code::kPeerFailure);
}

TEST(ProcessMemory, threads_of_one_process_read_each_other) {
  const std::vector<std::byte> bytes = pattern(kNbytes, 1);
  std::vector<std::byte> here(bytes.size());
  ASSERT_TRUE(read_process_memory(::getpid(), reinterpret_cast<uintptr_t>(bytes.data()), here).is_ok());
  EXPECT_EQ(here, bytes);
}

}  // namespace
}  // namespace pc
