#include "wire/hello.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "wire/frame.h"

namespace pc {
namespace {

Hello hello() {
  Hello h{.role = Role::kData, .rank = 2, .peer = 1, .size = 4, .epoch = 9};
  for (std::size_t i = 0; i < h.job.size(); ++i) h.job[i] = static_cast<std::byte>(i + 1);
  for (std::size_t i = 0; i < h.key.size(); ++i) h.key[i] = static_cast<std::byte>(i + 21);
  for (std::size_t i = 0; i < h.nonce.size(); ++i) h.nonce[i] = static_cast<std::byte>(i + 31);
  return h;
}

HelloBytes encoded(const Hello& h) {
  HelloBytes out;
  encode(h, out);
  return out;
}

TEST(Hello, ReadsBackAsWritten) {
  for (const Role role : {Role::kData, Role::kControl, Role::kStore}) {
    Hello h = hello();
    h.role = role;
    const Result<Hello> read = decode_hello(encoded(h));
    ASSERT_TRUE(read.is_ok()) << read.status().to_string();
    EXPECT_EQ(encoded(read.value()), encoded(h));
  }
  EXPECT_TRUE(decode_hello(encoded(Hello{.role = Role::kStore})).is_ok()) << "a store has no rank";
}

TEST(Hello, LayoutIsTheOneInTheSpecification) {
  const HelloBytes b = encoded(hello());
  const uint8_t expected[kHelloBytes] = {'P', 'C', 'H', '1', 1,  1,  0,  0,  2,  0,  0,  0,  1,  0,  0,  0,
                                         4,   0,   0,   0,   9,  0,  0,  0,  1,  2,  3,  4,  5,  6,  7,  8,
                                         9,   10,  11,  12,  13, 14, 15, 16, 21, 22, 23, 24, 0,  0,  0,  0,
                                         31,  32,  33,  34,  35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46};
  EXPECT_EQ(std::memcmp(b.data(), expected, kHelloBytes), 0);
}

TEST(Hello, WhatIsOutOfRangeIsRefused) {
  const auto code_with = [](std::size_t at, uint8_t value) {
    HelloBytes b = encoded(hello());
    b[at] = std::byte{value};
    return decode_hello(b).status().code();
  };
  EXPECT_EQ(code_with(20, 3), Code::kOk) << "any epoch is well-formed";
  EXPECT_EQ(code_with(0, 'X'), Code::kPeerFailure) << "magic";
  EXPECT_EQ(code_with(4, 2), Code::kMismatch) << "version";
  EXPECT_EQ(code_with(6, 1), Code::kOk) << "it encrypts";
  EXPECT_EQ(code_with(6, 4), Code::kPeerFailure) << "an unknown feature";
  EXPECT_EQ(code_with(5, 0), Code::kPeerFailure) << "role";
  EXPECT_EQ(code_with(5, 4), Code::kPeerFailure) << "role";
  EXPECT_EQ(code_with(8, 4), Code::kPeerFailure) << "rank 4 of 4";
  EXPECT_EQ(code_with(11, 0x80), Code::kPeerFailure) << "a very negative rank";
  EXPECT_EQ(code_with(15, 0x80), Code::kPeerFailure) << "a very negative peer";
  EXPECT_EQ(code_with(19, 0x80), Code::kPeerFailure) << "negative size";
  EXPECT_EQ(code_with(7, 5), Code::kOk) << "the sixth data connection";
  for (const std::size_t reserved : {44u, 47u, 64u, 95u})
    EXPECT_EQ(code_with(reserved, 1), Code::kPeerFailure) << reserved;
}

TEST(Hello, OnlyDataConnectionsHaveNumbers) {
  Hello h = hello();
  h.number = 5;
  EXPECT_EQ(decode_hello(encoded(h)).value().number, 5);
  h.role = Role::kControl;
  EXPECT_EQ(decode_hello(encoded(h)).status().code(), Code::kPeerFailure);
}

TEST(Hello, AnEncryptingHelloHasItsFlagsAndAPublicKey) {
  Hello h = hello();
  h.encrypts = h.has_aes = true;
  h.public_key.fill(std::byte{5});
  const HelloBytes b = encoded(h);
  EXPECT_EQ(b[6], std::byte{3});
  EXPECT_EQ(b[64], std::byte{5});
  EXPECT_EQ(encoded(decode_hello(b).value()), b);
}

TEST(Hello, RandomBytesNeverPass) {
  std::mt19937 random(1);
  HelloBytes b;
  for (int i = 0; i < 100'000; ++i) {
    for (std::byte& byte : b) byte = static_cast<std::byte>(random() & 0xff);
    EXPECT_FALSE(decode_hello(b).is_ok());
  }
}

TEST(Hello, AnIncompatiblePeerGetsBothValuesAndWhatToDo) {
  Hello ours = hello();
  ours.peer = -1;
  const auto why = [&](auto change) {
    Hello theirs = hello();
    theirs.rank = 1;
    theirs.peer = 2;
    change(theirs);
    return compatible(ours, theirs);
  };
  EXPECT_TRUE(why([](Hello&) {}).is_ok());
  EXPECT_TRUE(why([](Hello& h) { h.rank = -1, h.size = 0; }).is_ok()) << "a launcher knows no size";
  const auto says = [](const Status& status, const std::string& one, const std::string& other) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find(one), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(other), std::string::npos) << status.message();
  };
  says(why([](Hello& h) { h.size = 8; }), "world of 8", "we for 4");
  says(why([](Hello& h) { h.epoch = 8; }), "epoch 8", "epoch 9");
  says(why([](Hello& h) { h.role = Role::kStore; }), "store connection", "data connection");
  says(why([](Hello& h) { h.job = {}; }), "belongs to job " + fingerprint({}), "we to job ");
  says(why([](Hello& h) { h.rank = 2; }), "it is rank 2", "so are we");
  says(why([](Hello& h) { h.encrypts = true; }), "it encrypts and we do not", "PYCOLLECTIVE_SECURITY");
  says(why([](Hello& h) { h.peer = 3; }), "looks for rank 3", "we are rank 2");
  ours.peer = 0;
  says(why([](Hello&) {}), "answers as rank 1", "look for rank 0");
}

}  // namespace
}  // namespace pc
