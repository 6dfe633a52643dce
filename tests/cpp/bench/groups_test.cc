// Which ranks measure together.
#include "bench/groups.h"

#include <gtest/gtest.h>

namespace pc::bench {
namespace {

using Groups = std::vector<std::vector<Rank>>;

Groups read(const std::string& words, Rank size) {
  const Result<Groups> found = groups(words, size);
  EXPECT_TRUE(found.is_ok()) << words;
  return found.is_ok() ? found.value() : Groups();
}

TEST(BenchGroups, a_rank_is_in_one_group_at_most_and_the_order_is_the_given_one) {
  EXPECT_EQ(read("", 3), (Groups{{0, 1, 2}}));
  EXPECT_EQ(read("3,1", 4), (Groups{{3, 1}}));
  EXPECT_EQ(read("even-odd", 5), (Groups{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(read("even-odd", 2), (Groups{{0}, {1}}));
}

TEST(BenchGroups, ranks_that_are_not_there_are_refused) {
  for (const char* const words : {"4", "-1", "x", "0,", "0,1,0", "odd-even"})
    EXPECT_FALSE(groups(words, 4).is_ok()) << words;
  EXPECT_FALSE(groups("even-odd", 1).is_ok());
}

}  // namespace
}  // namespace pc::bench
