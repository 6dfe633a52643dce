// A rank that shares memory with no other rank has the same functions.
#include "shm/local_peers_single.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace pc {
namespace {

TEST(SingleLocalPeers, has_itself_alone_and_memory_of_zeros) {
  const std::unique_ptr<LocalPeers> alone = make_single_local_peers(3).value();
  EXPECT_TRUE(alone->has(3));
  EXPECT_FALSE(alone->has(2));
  const SharedRange more = alone->grow(10'000).value();
  EXPECT_EQ(more.offset, LocalPeers::kFirstNbytes);
  EXPECT_GE(more.memory.size(), 10'000U);
  EXPECT_TRUE(
      std::all_of(more.memory.begin(), more.memory.end(), [](std::byte b) { return b == std::byte{}; }));
  EXPECT_EQ(alone->map(3, more.offset + 64, 100).value().data(), more.memory.data() + 64);
}

// Otherwise a call would end the process when memory is short.
TEST(SingleLocalPeers, memory_is_there_before_it_is_touched) {
  const std::unique_ptr<LocalPeers> alone = make_single_local_peers(0).value();
  const std::span<std::byte> memory = alone->grow(1'000'000).value().memory;
  if (::madvise(memory.data(), memory.size(), 23) != 0 && errno == EINVAL)  // MADV_POPULATE_WRITE
    GTEST_SKIP() << "this kernel cannot do that (Linux 5.14 can)";
  const std::span<std::byte> more = alone->grow(1'000'000).value().memory;
  std::vector<unsigned char> resident(more.size() / 4096);
  ASSERT_EQ(::mincore(more.data(), more.size(), resident.data()), 0);
  EXPECT_TRUE(std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return page == 1; }));
}

TEST(SingleLocalPeers, what_is_not_there_is_refused) {
  const std::unique_ptr<LocalPeers> alone = make_single_local_peers(0).value();
  EXPECT_FALSE(alone->map(0, LocalPeers::kFirstNbytes, 1).is_ok());
  EXPECT_FALSE(alone->map(0, 0, LocalPeers::kFirstNbytes + 1).is_ok());
  EXPECT_FALSE(alone->map(1, 0, 1).is_ok());
}

TEST(SingleLocalPeers, its_notification_stays_until_it_is_cleared) {
  const std::unique_ptr<LocalPeers> alone = make_single_local_peers(0).value();
  EXPECT_FALSE(alone->clear_notification());
  alone->notify(0);
  EXPECT_TRUE(alone->clear_notification());
}

}  // namespace
}  // namespace pc
