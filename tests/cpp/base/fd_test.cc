#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace pc {
namespace {

int open_one() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(Fd, closes_what_it_owns) {
  const int raw = open_one();
  {
    const Fd fd(raw);
    EXPECT_TRUE(fd.valid());
    EXPECT_EQ(fd.get(), raw);
  }
  EXPECT_FALSE(is_open(raw));
  EXPECT_FALSE(Fd().valid());
}

TEST(Fd, moving_leaves_one_owner) {
  const int first = open_one(), second = open_one();
  Fd a(first), b(second);
  a = std::move(b);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(a.get(), second);
  EXPECT_FALSE(b.valid());  // NOLINT(bugprone-use-after-move): that is what is tested
  const Fd c(std::move(a));
  EXPECT_TRUE(is_open(second));
  EXPECT_EQ(c.get(), second);
}

TEST(Fd, moving_to_itself_and_resetting_to_what_it_has_keep_it_open) {
  Fd fd(open_one());
  Fd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(is_open(fd.get()));
  fd.reset(fd.get());
  EXPECT_TRUE(is_open(fd.get()));
}

TEST(Fd, releasing_hands_over_and_resetting_closes) {
  Fd fd(open_one());
  const int raw = fd.release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(is_open(raw));
  fd.reset(raw);
  fd.reset();
  EXPECT_FALSE(is_open(raw));
}

}  // namespace
}  // namespace pc
