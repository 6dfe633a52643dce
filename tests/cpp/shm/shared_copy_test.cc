// With every kind of store, all bytes arrive and no others are written.
#include "shm/shared_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace pc {
namespace {

StoreChoice usually(Stores best) {
  StoreChoice choice;
  for (int each = 0; each < kStoresCount; ++each) {
    const bool is_best = static_cast<Stores>(each) == best;
    choice.took(static_cast<Stores>(each), 8192, std::chrono::nanoseconds(is_best ? 100 : 10'000));
  }
  return choice;
}

TEST(SharedCopy, all_bytes_arrive_and_the_reported_progress_grows_to_the_end) {
  std::vector<std::byte> from(300'000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  for (const Stores stores : {Stores::kVector, Stores::kString, Stores::kPastCaches}) {
    SharedCopy copy(usually(stores));
    ASSERT_EQ(copy.stores(), stores);
    for (const std::size_t nbytes : {0UL, 1UL, 4095UL, 4096UL, 8191UL, 8192UL, 8193UL, 65'537UL, 299'983UL}) {
      for (int again = 0; again < 20; ++again) {  // so that all kinds are tried
        std::vector<std::byte> to(nbytes + 64, std::byte{0xAA});
        std::size_t said = 0;
        copy(to.data() + 7, from.data() + 3, nbytes, 8192, [&](std::size_t done) {
          ASSERT_GT(done, said);
          EXPECT_EQ(std::memcmp(to.data() + 7 + said, from.data() + 3 + said, done - said), 0);
          said = done;
        });
        ASSERT_EQ(said, nbytes);
        ASSERT_EQ(to[6], std::byte{0xAA});
        ASSERT_EQ(to[7 + nbytes], std::byte{0xAA});
      }
    }
  }
}

}  // namespace
}  // namespace pc
