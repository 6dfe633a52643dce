#include "wire/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bytes.h"

namespace pc {
namespace {

struct Pair {
  explicit Pair(Cipher cipher, int number = 1) : sends(cipher, key(number)), receives(cipher, key(number)) {}
  static std::array<std::byte, 32> key(int number) { return {static_cast<std::byte>(number)}; }
  SealKey sends, receives;
};

Bytes text(std::size_t nbytes) {
  Bytes bytes(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

Bytes sealed(SealKey& key, const Bytes& what) {
  Bytes record(what.size() + kSealOverheadBytes);
  std::copy(what.begin(), what.end(), record.begin() + kSealHeadBytes);
  key.seal(record);
  return record;
}

class SealTest : public ::testing::TestWithParam<Cipher> {
 protected:
  void SetUp() override {
    if (GetParam() == Cipher::kAes256Gcm && !aes_available()) GTEST_SKIP() << "no AES on this processor";
  }
};
INSTANTIATE_TEST_SUITE_P(Both, SealTest, ::testing::Values(Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305));

TEST_P(SealTest, WhatWasSealedOpensAndDoesNotLieOpenlyInTheRecord) {
  Pair pair(GetParam());
  for (const std::size_t nbytes : {1u, 15u, 16u, 17u, 100u, 4096u, 65535u, 65536u}) {
    const Bytes what = text(nbytes);
    Bytes record = sealed(pair.sends, what);
    EXPECT_EQ(sealed_record_nbytes(std::span(record).first<kSealHeadBytes>()).value(), record.size());
    if (nbytes >= 15) {
      EXPECT_EQ(std::search(record.begin(), record.end(), what.begin(), what.begin() + 15), record.end());
    }
    ASSERT_TRUE(pair.receives.open(record).is_ok()) << nbytes;
    EXPECT_TRUE(std::equal(what.begin(), what.end(), record.begin() + kSealHeadBytes)) << nbytes;
  }
}

TEST_P(SealTest, EveryFlippedBitIsFound) {
  for (std::size_t bit = 0; bit < 8 * (20 + kSealOverheadBytes); ++bit) {
    Pair pair(GetParam());
    Bytes record = sealed(pair.sends, text(20));
    record[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(pair.receives.open(record).code(), Code::kPeerFailure) << bit;
  }
}

TEST_P(SealTest, RecordsThatAreRepeatedLeftOutOrSwappedDoNotOpen) {
  Pair pair(GetParam());
  Bytes first = sealed(pair.sends, text(20)), again = first, second = sealed(pair.sends, text(20));
  EXPECT_FALSE(std::equal(first.begin(), first.end(), second.begin())) << "equal texts look different";
  EXPECT_TRUE(pair.receives.open(first).is_ok());
  EXPECT_FALSE(pair.receives.open(again).is_ok());
  Pair other(GetParam());
  sealed(other.sends, text(20));
  Bytes left_over = sealed(other.sends, text(20));
  EXPECT_FALSE(other.receives.open(left_over).is_ok());
}

TEST_P(SealTest, AnotherKeyDoesNotOpen) {
  Pair pair(GetParam()), other(GetParam(), 2);
  Bytes record = sealed(pair.sends, text(20));
  EXPECT_FALSE(other.receives.open(record).is_ok());
}

TEST(Seal, ImpossibleLengthsAreRefusedBeforeMemoryIsTaken) {
  const auto nbytes = [](std::array<unsigned char, 4> head) {
    return sealed_record_nbytes(std::as_bytes(std::span<const unsigned char, 4>(head)));
  };
  EXPECT_FALSE(nbytes({0, 0, 0, 0}).is_ok());
  EXPECT_FALSE(nbytes({1, 0, 1, 0}).is_ok());
  EXPECT_FALSE(nbytes({255, 255, 255, 255}).is_ok());
  EXPECT_EQ(nbytes({0, 0, 1, 0}).value(), 65536 + kSealOverheadBytes);
}

}  // namespace
}  // namespace pc
