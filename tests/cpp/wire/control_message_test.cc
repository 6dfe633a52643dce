#include "wire/control_message.h"

#include <gtest/gtest.h>

#include <random>

#include "bytes.h"
#include "wire/crc32c.h"
#include "wire/little_endian.h"

namespace pc {
namespace {

ControlMessage notice() {
  ControlMessage m;
  m.type = FrameType::kNotice;
  m.epoch = 0x01020304;
  m.call = {0x11121314, 0x2122232425262728};
  m.asks = m.asks_where = true;
  m.report.state = CallReport::State::kRunning;
  m.report.digest = 0x3132333435363738;
  m.report.last_done = 0x4142434445464748;
  m.report.call = "collective=allreduce\ncount=7";
  m.report.site = "train.py:42 in step";
  m.report.last_call = "barrier #6";
  m.report.where = "load.py:7 in read";
  return m;
}

ControlMessage cancel() {
  ControlMessage m = notice();
  m.type = FrameType::kCancel;
  m.asks = m.asks_where = false;
  m.report.state = CallReport::State::kNotMade;
  m.report.where_follows = true;
  m.end = {Code::kTimeout, 3, "timed out after 30 s"};
  return m;
}

ControlMessage dead() {
  ControlMessage m;
  m.type = FrameType::kDead;
  m.epoch = 9;
  m.end.by = 5;
  m.end.text = "killed by signal 9";
  return m;
}

ControlMessage simple(FrameType type, bool asks = false) {
  ControlMessage m;
  m.type = type;
  m.asks = asks;
  return m;
}

Bytes encoded(const ControlMessage& m) {
  Bytes out;
  encode(m, out);
  return out;
}

std::optional<ControlMessage> read_back(const ControlMessage& m) {
  ControlReader reader;
  const Status status = reader.feed(encoded(m));
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  std::optional<ControlMessage> read = reader.next();
  EXPECT_FALSE(reader.next().has_value());
  return read;
}

void expect_equal_reports(const CallReport& x, const CallReport& y) {
  EXPECT_EQ(x.state, y.state);
  EXPECT_EQ(x.digest, y.digest);
  EXPECT_EQ(x.last_done, y.last_done);
  EXPECT_EQ(x.call, y.call);
  EXPECT_EQ(x.site, y.site);
  EXPECT_EQ(x.last_call, y.last_call);
  EXPECT_EQ(x.where, y.where);
  EXPECT_EQ(x.where_follows, y.where_follows);
}

// Changes a header and computes its checksum again, as an attacker can.
Bytes with_header(const ControlMessage& m, void (*change)(FrameHeader&)) {
  Bytes bytes = encoded(m);
  FrameHeader header = decode(std::span<const std::byte>(bytes).first<kHeaderBytes>()).value();
  change(header);
  HeaderBytes signed_again;
  encode(header, signed_again);
  std::copy(signed_again.begin(), signed_again.end(), bytes.begin());
  return bytes;
}

bool refused(const Bytes& bytes) {
  ControlReader reader;
  const bool error = !reader.feed(bytes).is_ok();
  EXPECT_FALSE(error && reader.next().has_value());
  return error;
}

TEST(ControlMessage, NoticeReadsBackAsWritten) {
  const ControlMessage sent = notice();
  const std::optional<ControlMessage> read = read_back(sent);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->type, FrameType::kNotice);
  EXPECT_EQ(read->epoch, sent.epoch);
  EXPECT_EQ(read->call, sent.call);
  EXPECT_TRUE(read->asks && read->asks_where);
  expect_equal_reports(read->report, sent.report);
}

TEST(ControlMessage, CancelReadsBackAsWritten) {
  const ControlMessage sent = cancel();
  const std::optional<ControlMessage> read = read_back(sent);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->type, FrameType::kCancel);
  EXPECT_EQ(read->call, sent.call);
  EXPECT_EQ(read->end.code, Code::kTimeout);
  EXPECT_EQ(read->end.by, 3);
  EXPECT_EQ(read->end.text, sent.end.text);
  expect_equal_reports(read->report, sent.report);
}

TEST(ControlMessage, DeadPingAndGoodbyeReadBackAsWritten) {
  const std::optional<ControlMessage> read = read_back(dead());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->type, FrameType::kDead);
  EXPECT_EQ(read->epoch, 9u);
  EXPECT_EQ(read->end.by, 5);
  EXPECT_EQ(read->end.text, "killed by signal 9");
  for (const bool asks : {false, true}) EXPECT_EQ(read_back(simple(FrameType::kPing, asks))->asks, asks);
  EXPECT_EQ(read_back(simple(FrameType::kGoodbye))->type, FrameType::kGoodbye);
  EXPECT_EQ(encoded(simple(FrameType::kPing)).size(), kHeaderBytes);
}

TEST(ControlMessage, LongTextsAreCutAndShortOnesAreNot) {
  ControlMessage m = cancel();
  m.report.call = std::string(100'000, 'c');
  m.report.where = std::string(100'000, 'w');
  const Bytes bytes = encoded(m);
  EXPECT_LE(bytes.size(), kHeaderBytes + kMaxControlPayload + kTrailerBytes);
  const std::optional<ControlMessage> read = read_back(m);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->report.site, m.report.site);
  EXPECT_EQ(read->report.last_call, m.report.last_call);
  EXPECT_EQ(read->end.text, m.end.text);
  EXPECT_GT(read->report.call.size(), 2000u) << "it gets what the short ones leave";
  EXPECT_GT(read->report.where.size(), 800u);
  EXPECT_EQ(read->report.call, std::string(read->report.call.size(), 'c'));
  EXPECT_EQ(bytes.size(), kHeaderBytes + kMaxControlPayload + kTrailerBytes) << "no room is wasted";
}

TEST(ControlMessage, NoCharacterIsCutInHalf) {
  for (const std::string character : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (std::size_t ahead = 0; ahead < 4; ++ahead) {
      ControlMessage m = dead();
      m.end.text = std::string(ahead, 'x');
      while (m.end.text.size() < 2 * kMaxControlPayload) m.end.text += character;
      const std::string text = read_back(m)->end.text;
      EXPECT_EQ((text.size() - ahead) % character.size(), 0u);
      EXPECT_GT(text.size(), kMaxControlPayload - 2 - 4);
    }
  }
  ControlMessage m = dead();
  m.end.text = std::string(2 * kMaxControlPayload, '\x80');
  EXPECT_EQ(read_back(m)->end.text, "") << "no character at all";
}

TEST(ControlMessage, TheStreamMayBeCutAnywhere) {
  Bytes stream;
  for (const ControlMessage& m :
       {notice(), simple(FrameType::kPing, true), cancel(), dead(), simple(FrameType::kGoodbye)}) {
    encode(m, stream);
  }
  for (const std::size_t piece : {1u, 2u, 63u, 64u, 65u, 1000u}) {
    ControlReader reader;
    std::vector<FrameType> types;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(reader.feed(std::span(stream).subspan(at, std::min(piece, stream.size() - at))).is_ok());
      while (const std::optional<ControlMessage> m = reader.next()) types.push_back(m->type);
    }
    EXPECT_EQ(types, (std::vector{FrameType::kNotice, FrameType::kPing, FrameType::kCancel, FrameType::kDead,
                                  FrameType::kGoodbye}));
  }
}

TEST(ControlMessage, FramesOfOtherConnectionsAreRefused) {
  for (const FrameType type :
       {FrameType::kData, FrameType::kRequest, FrameType::kClear, FrameType::kCredit}) {
    HeaderBytes header;
    encode(FrameHeader{.type = type, .id = {{0, StreamClass::kControl, 0}}}, header);
    EXPECT_TRUE(decode(header).is_ok()) << "well-formed elsewhere";
    EXPECT_TRUE(refused(Bytes(header.begin(), header.end())));
  }
}

TEST(ControlMessage, WhatIsOutOfRangeIsRefusedEvenWithARightChecksum) {
  EXPECT_FALSE(refused(with_header(cancel(), [](FrameHeader&) {})));
  EXPECT_TRUE(refused(with_header(cancel(), [](FrameHeader& h) { h.id.stream.tag = 6; }))) << "state";
  EXPECT_TRUE(refused(with_header(cancel(), [](FrameHeader& h) { h.id.stream.tag = 1; }))) << "no reason";
  EXPECT_TRUE(refused(with_header(cancel(), [](FrameHeader& h) { h.id.stream.tag = 0xff01; }))) << "reason";
  EXPECT_TRUE(refused(with_header(cancel(), [](FrameHeader& h) { h.id.stream.tag |= 1 << 16; })));
  EXPECT_TRUE(refused(with_header(notice(), [](FrameHeader& h) { h.id.stream.tag |= 1 << 8; })));
  EXPECT_TRUE(refused(with_header(notice(), [](FrameHeader& h) { h.id.index = 1; })));
  EXPECT_TRUE(refused(with_header(dead(), [](FrameHeader& h) { h.id.sequence = 1; })));
  EXPECT_TRUE(refused(with_header(simple(FrameType::kPing), [](FrameHeader& h) { h.id.digest = 1; })));
  EXPECT_TRUE(refused(with_header(notice(), [](FrameHeader& h) {
    h.message_nbytes = h.segment_nbytes = kMaxControlPayload + 1;
  }))) << "notified before it has arrived";
  EXPECT_TRUE(refused(with_header(simple(FrameType::kGoodbye), [](FrameHeader& h) { h.flags = kFlagAsks; })));
}

TEST(ControlMessage, PayloadsThatAreNotWhatTheySayAreRefused) {
  const Bytes good = encoded(dead());
  const auto with_payload = [&](std::size_t nbytes, std::size_t length) {
    ControlMessage m = dead();
    m.end.text = std::string(nbytes - 2, 'x');
    Bytes bytes = encoded(m);
    put(&bytes[kHeaderBytes], static_cast<uint16_t>(length));
    put(&bytes[kHeaderBytes + nbytes], crc32c({&bytes[kHeaderBytes], nbytes}));
    return bytes;
  };
  EXPECT_FALSE(refused(with_payload(20, 18)));
  EXPECT_TRUE(refused(with_payload(20, 19))) << "longer than what came";
  EXPECT_TRUE(refused(with_payload(20, 17))) << "bytes are left over";
  EXPECT_TRUE(refused(with_payload(20, 65535)));
  Bytes damaged = good;
  damaged.back() ^= std::byte{1};
  EXPECT_TRUE(refused(damaged));
  damaged = good;
  damaged[kHeaderBytes + 4] ^= std::byte{1};
  EXPECT_TRUE(refused(damaged));
}

TEST(ControlMessage, AnErrorIsFinalAndWhatCameBeforeItIsStillRead) {
  Bytes bytes = encoded(dead());
  bytes.resize(bytes.size() + kHeaderBytes, std::byte{1});
  ControlReader reader;
  EXPECT_FALSE(reader.feed(bytes).is_ok());
  EXPECT_TRUE(reader.next().has_value());
  EXPECT_FALSE(reader.feed(encoded(dead())).is_ok());
  EXPECT_FALSE(reader.next().has_value());
}

// Mutated streams, half of them with repaired checksums, so that the checks after those are reached
// too.
TEST(ControlMessage, NoBytesWhateverCrashTheReader) {
  std::mt19937 random(1);
  const std::vector<Bytes> seeds = {encoded(notice()), encoded(cancel()), encoded(dead()),
                                    encoded(simple(FrameType::kPing, true)),
                                    encoded(simple(FrameType::kGoodbye))};
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = seeds[random() % seeds.size()];
    for (uint32_t i = 0, n = 1 + random() % 4; i < n; ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() & 0xff);
    if (round % 2 == 0) {
      put(&bytes[60], crc32c({bytes.data(), 60}));
      if (const std::size_t all = kHeaderBytes + kTrailerBytes; bytes.size() > all)
        put(&bytes[bytes.size() - 4], crc32c({&bytes[kHeaderBytes], bytes.size() - all}));
    }
    ControlReader reader;
    Status status;
    for (std::size_t at = 0; at < bytes.size() && status.is_ok();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 80, bytes.size() - at);
      status = reader.feed(std::span(bytes).subspan(at, n));
      at += n;
    }
    while (const std::optional<ControlMessage> m = reader.next()) {
      ++accepted;
      EXPECT_LE(m->report.call.size() + m->end.text.size(), kMaxControlPayload);
      EXPECT_LE(m->report.state, CallReport::State::kLeaving);
      EXPECT_LE(m->end.code, Code::kInternal);
    }
  }
  EXPECT_GT(accepted, 500) << "some mutants are valid";
}

}  // namespace
}  // namespace pc
