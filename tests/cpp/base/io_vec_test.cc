#include "base/io_vec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace pc {
namespace {

class IoVecTest : public ::testing::Test {
 protected:
  IoVecTest() {
    for (const std::string_view word : {"ab", "", "cdefg", "h"}) {
      list_.add(memory_ + used_, word.size());
      std::memcpy(memory_ + used_, word.data(), word.size());
      used_ += word.size() + 1;  // a gap of one byte between the words
    }
  }
  std::string text(std::span<const std::byte> bytes) const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::byte memory_[32] = {};
  std::size_t used_ = 0;
  IoVec list_;
};

TEST_F(IoVecTest, bytes_are_found_up_to_the_end_of_their_piece) {
  EXPECT_EQ(list_.nbytes(), 8u);
  EXPECT_EQ(text(list_.at(0, 8)), "ab");
  EXPECT_EQ(text(list_.at(1, 8)), "b");
  EXPECT_EQ(text(list_.at(2, 3)), "cde");
  EXPECT_EQ(text(list_.at(6, 2)), "g");
  EXPECT_EQ(text(list_.at(7, 1)), "h");
}

TEST_F(IoVecTest, adjacent_pieces_are_one_piece) {
  IoVec list;
  list.add(memory_, 3);
  list.add(memory_ + 3, 4);
  EXPECT_EQ(list.at(0, 7).size(), 7u);
}

TEST_F(IoVecTest, a_gather_has_its_pieces_and_their_total_size) {
  const ConstIoVec all({nullptr, &list_}, list_.nbytes());
  std::string joined;
  all.each([&](std::span<const std::byte> piece) { joined += text(piece) + "|"; });
  EXPECT_EQ(joined, "ab|cdefg|h|");
  EXPECT_EQ(all.within(1, 8), 2u);
  EXPECT_EQ(all.within(2, 8), 7u);
  EXPECT_EQ(all.within(2, 4), 4u);
  joined.clear();
  all.slice(1, 4).each([&](std::span<const std::byte> piece) { joined += text(piece) + "|"; });
  EXPECT_EQ(joined, "b|cde|");
  EXPECT_FALSE(all.together());
  EXPECT_EQ(ConstIoVec(std::span<const std::byte>(memory_)).together()->size(), sizeof memory_);
}

TEST_F(IoVecTest, bytes_are_spread_over_places_that_are_cut_elsewhere) {
  std::byte one[3], other[5];
  IoVec to;
  to.add(one, sizeof one);
  to.add(other, sizeof other);
  copy_pieces(ConstIoVec({nullptr, &list_}, 8), {nullptr, &to}, std::memcpy);
  EXPECT_EQ(text(one) + text(other), "abcdefgh");
}

}  // namespace
}  // namespace pc
