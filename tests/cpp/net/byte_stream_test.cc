// A ByteStream is a stream: it delivers the bytes that were written, however the socket splits
// them, sealed or not.
#include "net/byte_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <vector>

#include "bytes.h"

namespace pc {
namespace {

enum class Kind { kPlain, kAes, kChaCha };

std::unique_ptr<Seal> seal(Kind kind, int sends, int receives) {
  if (kind == Kind::kPlain) return nullptr;
  const Cipher cipher = kind == Kind::kAes ? Cipher::kAes256Gcm : Cipher::kChaCha20Poly1305;
  const std::array<std::byte, 32> one = {static_cast<std::byte>(sends)},
                                  two = {static_cast<std::byte>(receives)};
  return std::unique_ptr<Seal>(new Seal{{cipher, one}, {cipher, two}});
}

struct Ends {
  explicit Ends(Kind kind) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    const int least = 1;
    for (const int fd : fds) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    a = ByteStream(Fd(fds[0]), seal(kind, 1, 2));
    b = ByteStream(Fd(fds[1]), seal(kind, 2, 1));
  }
  ByteStream a, b;
};

// Cuts `bytes` into at most three parts of any size, the empty one included.
std::vector<iovec> cut(std::mt19937_64& random, std::byte* bytes, std::size_t nbytes) {
  std::vector<iovec> parts;
  for (int i = 0; i < 2; ++i) {
    const std::size_t count = random() % (nbytes + 1);
    parts.push_back({bytes, count});
    bytes += count;
    nbytes -= count;
  }
  parts.push_back({bytes, nbytes});
  return parts;
}

class ByteStreamTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kAes && !aes_available()) GTEST_SKIP() << "no AES on this processor";
  }
};
INSTANTIATE_TEST_SUITE_P(All, ByteStreamTest, ::testing::Values(Kind::kPlain, Kind::kAes, Kind::kChaCha));

TEST_P(ByteStreamTest, WhatIsWrittenIsReadHoweverItIsCut) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    Ends ends(GetParam());
    Bytes sent = random_bytes(random, random() % 300'000), got(sent.size() + 1);
    std::size_t in = 0, out = 0, idle = 0;
    while (out < sent.size() && idle < 1000) {
      const std::size_t offered = std::min<std::size_t>(sent.size() - in, random() % 100'000);
      const std::vector<iovec> from = cut(random, sent.data() + in, offered);
      const Result<std::size_t> taken = ends.a.send(from);
      ASSERT_TRUE(taken.is_ok()) << taken.status().to_string();
      in += taken.value();
      ASSERT_TRUE(ends.a.flush().is_ok());
      const std::size_t wanted = 1 + random() % 100'000;
      const std::vector<iovec> to =
          cut(random, got.data() + out, std::min<std::size_t>(wanted, got.size() - out));
      const bool held = ends.b.holds_bytes();
      const Result<ByteStream::Received> received = ends.b.receive(to);
      ASSERT_TRUE(received.is_ok()) << received.status().to_string();
      EXPECT_TRUE(!held || received.value().nbytes > 0) << "bytes that were promised";
      out += received.value().nbytes;
      idle = received.value().nbytes + taken.value() > 0 ? 0 : idle + 1;
    }
    ASSERT_EQ(out, sent.size());
    got.resize(out);
    EXPECT_TRUE(got == sent);
  }
}

TEST_P(ByteStreamTest, TheEndIsSeenBehindEverythingThatWasSent) {
  Ends ends(GetParam());
  std::byte bytes[10] = {};
  const iovec ten{bytes, 10}, all{bytes, 10};
  ASSERT_EQ(ends.a.send({&ten, 1}).value(), 10u);
  ends.a.reset();
  EXPECT_EQ(ends.b.receive({&all, 1}).value().nbytes, 10u);
  const ByteStream::Received end = ends.b.receive({&all, 1}).value();
  EXPECT_TRUE(end.end);
  EXPECT_EQ(end.nbytes, 0u);
}

TEST_P(ByteStreamTest, NothingThereIsNothingReceived) {
  Ends ends(GetParam());
  std::byte byte;
  const iovec one{&byte, 1};
  const ByteStream::Received none = ends.b.receive({&one, 1}).value();
  EXPECT_FALSE(none.end);
  EXPECT_EQ(none.nbytes, 0u);
  EXPECT_FALSE(ends.b.holds_bytes());
}

class SealedStreamTest : public ByteStreamTest {};  // plain bytes have the frames' checksums
INSTANTIATE_TEST_SUITE_P(All, SealedStreamTest, ::testing::Values(Kind::kAes, Kind::kChaCha));

TEST_P(SealedStreamTest, WhatIsChangedOnTheWayIsNeverHandedOut) {
  Ends sends(GetParam()), receives(GetParam());
  Bytes two(20, std::byte{1});
  for (int i = 0; i < 2; ++i) {
    const iovec ten{two.data(), 10};
    ASSERT_EQ(sends.a.send({&ten, 1}).value(), 10u);
  }
  Bytes wire(2 * (10 + kSealOverheadBytes));
  ASSERT_EQ(::recv(sends.b.fd(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  wire[wire.size() - 5] ^= std::byte{1};  // in the second record
  ASSERT_EQ(::send(receives.a.fd(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  Bytes got(100);
  const iovec room{got.data(), got.size()};
  EXPECT_EQ(receives.b.receive({&room, 1}).value().nbytes, 10u) << "the first record is good";
  EXPECT_TRUE(receives.b.holds_bytes()) << "otherwise no caller would return for the error";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(receives.b.receive({&room, 1}).status().code(), Code::kPeerFailure);
}

}  // namespace
}  // namespace pc
