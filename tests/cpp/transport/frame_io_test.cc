// FrameWriter and FrameReader over a socket with a small buffer: every frame is split somewhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "base/fd.h"
#include "bytes.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/frame_writer.h"
#include "wire/link.h"

namespace pc {
namespace {

constexpr std::size_t kPlenty = 1 << 30;

class Counter final : public CompletionSink {
 public:
  void complete(Completion&& completion) override {
    EXPECT_TRUE(completion.status.is_ok()) << completion.status.to_string();
    tokens.push_back(completion.token);
  }
  std::vector<uint64_t> tokens;
};

class Endings final : public CompletionSink {
 public:
  void complete(Completion&& completion) override { codes.push_back(completion.status.code()); }
  std::vector<Code> codes;
};

struct End final : FrameIo {
  explicit End(Rank me) : link(me, 1 - me, 1, {}, this), reader(1 - me) {}
  void keep_unsent() override { writer.keep_unsent(); }
  void redirect(std::span<std::byte> there) override { reader.redirect(there); }
  bool move() {
    const Result<std::size_t> written = writer.write(stream, link, kPlenty);
    const Result<std::size_t> read = reader.read(stream, link, kPlenty);
    EXPECT_TRUE(written.is_ok() && read.is_ok());
    return written.is_ok() && read.is_ok() && written.value() + read.value() > 0;
  }
  ByteStream stream;
  Link link;
  FrameWriter writer;
  FrameReader reader;
  Counter sends, recvs;
};

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    a.stream = ByteStream(Fd(fds[0]));
    b.stream = ByteStream(Fd(fds[1]));
    const int least = 1;
    for (const int fd : fds) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }
  End a{0}, b{1};
};

MessageId numbered(uint64_t sequence) { return {{0, StreamClass::kPointToPoint, 0}, sequence, 0, 1}; }

// The lengths vary, so that headers and descriptions are split everywhere.
std::span<const std::byte> description(std::size_t i) {
  static const std::vector<std::byte> kBytes = pattern(kMaxDescriptionBytes, 1);
  return std::span(kBytes).first(i % 3 == 0 ? i * 7 % (kMaxDescriptionBytes + 1) : 0);
}

TEST(FrameIo, MessagesOfEverySizeArriveWholeThroughANarrowSocket) {
  Ends ends;
  // Covers payloads that are copied and that are not, eager and announced messages, one segment and
  // several, and more small messages than fit a buffer or a batch.
  std::vector<std::size_t> sizes = {0, 1, 8191, 8192, 8193, 65536, 65537, 262144, 262145, 3'000'000};
  sizes.insert(sizes.end(), 600, 100);
  std::vector<std::vector<std::byte>> data, got;
  for (const std::size_t nbytes : sizes) {
    data.push_back(pattern(nbytes, nbytes));
    got.emplace_back(nbytes);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ends.b.link.post_recv({numbered(i), got[i], got[i].size(), nullptr, &ends.b.recvs, i});
    ends.a.link.post_send({numbered(i), data[i], &ends.a.sends, i, description(i)});
  }
  while (ends.a.move() | ends.b.move()) {
  }
  EXPECT_EQ(ends.a.sends.tokens.size(), sizes.size());
  EXPECT_EQ(ends.b.recvs.tokens.size(), sizes.size());
  EXPECT_FALSE(ends.a.writer.pending() || ends.b.writer.pending());
  for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(got[i], data[i]) << sizes[i];
}

TEST(FrameIo, PiecesAreSentInPlace) {
  Ends ends;
  std::vector<std::vector<std::byte>> memory;
  IoVec list;
  std::vector<std::byte> sent, got;
  for (const std::size_t nbytes : {1, 100, 9'000, 1, 300'000, 7, 63, 1'000'000, 8'192, 5}) {
    for (std::size_t i = 0; i < 30; ++i) memory.push_back(pattern(nbytes + i, i));
  }
  for (std::vector<std::byte>& piece : memory) {
    list.add(piece.data(), piece.size());
    sent.insert(sent.end(), piece.begin(), piece.end());
  }
  got.resize(sent.size());
  ends.b.link.post_recv({numbered(0), got, got.size(), nullptr, &ends.b.recvs, 0});
  ends.a.link.post_send({numbered(0), ConstIoVec({nullptr, &list}, list.nbytes()), &ends.a.sends, 0});
  for (int round = 0; round < 20; ++round) static_cast<void>(ends.a.move() | ends.b.move());
  ends.a.writer.keep_unsent();  // as when an operation is cancelled meanwhile
  while (ends.a.move() | ends.b.move()) {
  }
  EXPECT_EQ(ends.a.sends.tokens.size() + ends.b.recvs.tokens.size(), 2u);
  EXPECT_TRUE(got == sent);
}

// A send or receive is cancelled at every stage of a message: the transfer is completed without its
// memory.
TEST(FrameIo, WhatIsGivenUpInTheMiddleOfAFrameDamagesNothing) {
  constexpr std::size_t kBytes = 700'000;
  const std::vector<std::byte> next = pattern(100'000, 1);
  for (int moves = 0; moves < 120; ++moves) {
    for (const bool by_sender : {true, false}) {
      SCOPED_TRACE(::testing::Message() << moves << " moves, by the " << (by_sender ? "sender" : "receiver"));
      Ends ends;
      std::vector<std::byte> out = pattern(kBytes, 2), in(kBytes), next_in(next.size());
      Endings sends, recvs;
      ends.b.link.post_recv({numbered(0), in, kBytes, nullptr, &recvs, 0});
      ends.a.link.post_send({numbered(0), out, &sends, 0});
      for (int i = 0; i < moves; ++i) i % 2 == 0 ? ends.b.move() : ends.a.move();
      const bool over = by_sender ? !sends.codes.empty() : !recvs.codes.empty();
      End& quits = by_sender ? ends.a : ends.b;
      static_cast<void>(quits.link.cancel(by_sender ? &sends : &recvs, Status(Code::kTimeout, "too late")));
      std::vector<std::byte>& memory = by_sender ? out : in;
      const std::vector<std::byte> others(memory.size(), std::byte{0xDD});
      if (!over) memory = others;
      ends.a.link.post_send({numbered(1), next, &ends.a.sends, 1});
      ends.b.link.post_recv({numbered(1), next_in, next_in.size(), nullptr, &ends.b.recvs, 1});
      while (ends.a.move() | ends.b.move()) {
      }
      EXPECT_EQ(ends.b.recvs.tokens, std::vector<uint64_t>{1});
      EXPECT_EQ(next_in, next);
      if (!over) {
        EXPECT_TRUE(memory == others);
      }
      const std::vector<Code>& other = by_sender ? recvs.codes : sends.codes;
      if (!over && !other.empty()) {
        EXPECT_TRUE(other.size() == 1 && (other[0] == Code::kOk || other[0] == Code::kTimeout));
      }
    }
  }
}

TEST(FrameIo, ASendIsNotDoneBeforeTheSocketHasAllOfIt) {
  Ends ends;
  const std::vector<std::byte> large = pattern(60'000, 1), small = pattern(10, 2);
  ends.a.link.post_send({numbered(0), large, &ends.a.sends, 0});
  ends.a.link.post_send({numbered(1), small, &ends.a.sends, 1});
  ASSERT_TRUE(ends.a.writer.write(ends.a.stream, ends.a.link, kPlenty).is_ok());
  EXPECT_TRUE(ends.a.writer.pending());
  EXPECT_TRUE(ends.a.sends.tokens.empty());
  while (ends.a.move() | ends.b.move()) {
  }
  EXPECT_EQ(ends.a.sends.tokens, (std::vector<uint64_t>{0, 1}));
}

}  // namespace
}  // namespace pc
