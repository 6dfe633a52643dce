// CRC32C against published vectors, and every implementation against the portable one.
#include "wire/crc32c.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "bytes.h"
#include "wire/crc32c_impl.h"

namespace pc {

void PrintTo(const Crc32cTarget& target, std::ostream* out) { *out << target.name; }  // for failure messages

namespace {

class EveryCrc : public testing::TestWithParam<Crc32cTarget> {
 protected:
  uint32_t crc(std::span<const std::byte> data, uint32_t before = 0, std::byte* to = nullptr) const {
    return ~GetParam().update(~before, to, data.data(), data.size());
  }
};
INSTANTIATE_TEST_SUITE_P(Crc32c, EveryCrc,
                         testing::ValuesIn(crc32c_targets().begin(), crc32c_targets().end()),
                         [](const auto& test) {
                           std::string name;
                           for (const char c : test.param.name)
                             name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST_P(EveryCrc, gives_the_published_values) {  // RFC 3720 B.4, and the usual check value
  Bytes rising(32), falling(32);
  for (std::size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<std::byte>(i);
    falling[i] = static_cast<std::byte>(31 - i);
  }
  const std::string digits = "123456789";
  EXPECT_EQ(crc(Bytes(32)), 0x8A9136AAu);
  EXPECT_EQ(crc(Bytes(32, std::byte{0xff})), 0x62A8AB43u);
  EXPECT_EQ(crc(rising), 0x46DD794Eu);
  EXPECT_EQ(crc(falling), 0x113FDB5Cu);
  EXPECT_EQ(crc(std::as_bytes(std::span(digits))), 0xE3069283u);
  EXPECT_EQ(crc({}), 0u);
}

TEST_P(EveryCrc, continues_where_it_was_cut_whatever_the_place) {
  const Bytes data = pattern(4500, 1);
  const uint32_t whole = crc32c_portable(data);
  for (std::size_t cut = 0; cut <= data.size(); ++cut) {
    const std::span<const std::byte> all(data);
    ASSERT_EQ(crc(all.subspan(cut), crc(all.first(cut))), whole) << cut;
  }
}

// Lengths around every boundary inside the implementations (1, 8, 384, 3968, 4032 and 512 bytes, of
// which 4 at least).
TEST_P(EveryCrc, equals_the_portable_one_at_every_length_and_alignment) {
  const Bytes data = pattern(70000, 1);
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n <= 1300; ++n) lengths.push_back(n);
  for (const std::size_t around : {2048u, 2560u, 3968u, 4032u, 4096u, 7936u, 8064u, 8192u, 11904u, 65536u}) {
    for (std::size_t n = around - 9; n <= around + 9; ++n) lengths.push_back(n);
  }
  for (const std::size_t n : lengths) {
    const std::span<const std::byte> piece = std::span(data).subspan(n % 67, n);
    ASSERT_EQ(crc(piece, 0xdeadbeef), crc32c_portable(piece, 0xdeadbeef)) << n;
  }
}

TEST_P(EveryCrc, copies_exactly_what_it_checks) {
  const Bytes data = pattern(20000, 1);
  for (const std::size_t n : {0u, 1u, 7u, 8u, 63u, 383u, 384u, 1000u, 2047u, 2048u, 3967u, 3968u, 4031u,
                              4032u, 4097u, 9000u, 19900u}) {
    for (const std::size_t at : {0u, 1u, 13u, 64u}) {
      Bytes to(n + 128, std::byte{0xa5});
      const std::span<const std::byte> piece = std::span(data).subspan(at, n);
      ASSERT_EQ(crc(piece, 0, to.data() + at), crc32c_portable(piece)) << n;
      ASSERT_TRUE(n == 0 || std::memcmp(to.data() + at, piece.data(), n) == 0) << n;
      for (std::size_t i = 0; i < to.size(); ++i) {
        ASSERT_TRUE((i >= at && i < at + n) || to[i] == std::byte{0xa5}) << "wrote outside at " << i;
      }
    }
  }
}

TEST_P(EveryCrc, notices_every_single_flipped_bit) {
  Bytes data = pattern(3000, 1);
  const uint32_t before = crc(data);
  for (std::size_t bit = 0; bit < 8 * data.size(); bit += 11) {
    const std::byte mask = static_cast<std::byte>(1u << (bit % 8));
    data[bit / 8] ^= mask;
    ASSERT_NE(crc(data), before) << bit;
    data[bit / 8] ^= mask;
  }
}

TEST(Crc32c, public_functions_use_the_best_target_and_agree) {
  const Bytes data = pattern(10000, 1);
  Bytes to(data.size());
  EXPECT_EQ(crc32c(data), crc32c_portable(data));
  EXPECT_EQ(crc32c_copy(to.data(), data), crc32c_portable(data));
  EXPECT_EQ(to, data);
  EXPECT_EQ(crc32c({}, 0x1234), 0x1234u);
  EXPECT_EQ(crc32c_targets().front().name, "portable");
}

}  // namespace
}  // namespace pc
