// Every implementation of the copy moves every byte and writes none outside the target.
#include "kernels/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "bytes.h"
#include "kernels/copy_impl.h"

namespace pc {

void PrintTo(const CopyTarget& target, std::ostream* out) { *out << target.name; }  // for failure messages

namespace {

// No two bytes at a distance of up to 255 are equal.
Bytes counting(std::size_t n) {
  Bytes data(n);
  for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::byte>(i % 255);
  return data;
}

class EveryCopy : public testing::TestWithParam<CopyTarget> {
 protected:
  void expect_copied(const Bytes& source, std::size_t at_to, std::size_t at_from, std::size_t nbytes) const {
    constexpr std::byte kUntouched{0xff};
    Bytes expected(nbytes + 2 * kPad, kUntouched);
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(at_from), nbytes,
                expected.begin() + static_cast<std::ptrdiff_t>(at_to));
    for (const Copy move : {GetParam().copy, GetParam().past_caches}) {
      Bytes to(nbytes + 2 * kPad, kUntouched);
      move(to.data() + at_to, source.data() + at_from, nbytes);
      ASSERT_TRUE(to == expected) << nbytes << " bytes from + " << at_from << " to + " << at_to;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Copy, EveryCopy, testing::ValuesIn(copy_targets().begin(), copy_targets().end()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(EveryCopy, moves_every_number_of_bytes_and_not_one_beside_them) {
  const Bytes source = counting(1100 + kPad);
  for (std::size_t nbytes = 0; nbytes <= 1100; ++nbytes) {
    expect_copied(source, nbytes % kPad, nbytes / 3 % kPad, nbytes);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(EveryCopy, moves_between_all_alignments) {
  const Bytes source = counting(600 + kPad);
  for (const std::size_t nbytes : {std::size_t{70}, std::size_t{257}, std::size_t{600}}) {
    for (std::size_t at_to = 0; at_to < kPad; ++at_to) {
      for (std::size_t at_from = 0; at_from < kPad; at_from += 7) {
        expect_copied(source, at_to, at_from, nbytes);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(EveryCopy, moves_megabytes) {
  const Bytes source = counting((5 << 20) + kPad);
  expect_copied(source, 0, 0, 5 << 20);
  expect_copied(source, 3, 1, (5 << 20) - 13);
}

TEST(Copy, of_nothing_needs_no_memory) { copy(nullptr, nullptr, 0); }

TEST(Copy, knows_the_portable_one) { EXPECT_EQ(copy_targets().front().name, "portable"); }

}  // namespace
}  // namespace pc
