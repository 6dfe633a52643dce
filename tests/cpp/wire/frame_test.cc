#include "wire/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "wire/crc32c.h"

namespace pc {
namespace {

FrameHeader data_header() {
  FrameHeader h;
  h.epoch = 0x01020304;
  h.id = {{0x11121314, StreamClass::kPointToPoint, 0x21222324}, 0x3132333435363738, 0, 0x5152535455565758};
  h.message_nbytes = 0x1'0000'0000 + 128;
  h.offset = 0x1'0000'0000 - 64;
  h.segment_nbytes = 192;
  return h;
}

HeaderBytes encoded(const FrameHeader& h) {
  HeaderBytes out;
  encode(h, out);
  return out;
}

// Computes the checksum again, as an attacker can.
template <class Bytes>
void sign(Bytes& bytes) {
  const uint32_t crc = crc32c({bytes.data(), 60});
  for (std::size_t i = 0; i < 4; ++i) bytes[60 + i] = static_cast<std::byte>((crc >> (8 * i)) & 0xff);
}

void expect_equal(const FrameHeader& x, const FrameHeader& y) {
  EXPECT_EQ(x.type, y.type);
  EXPECT_EQ(x.flags, y.flags);
  EXPECT_EQ(x.epoch, y.epoch);
  EXPECT_EQ(x.id.stream, y.id.stream);
  EXPECT_EQ(x.id.sequence, y.id.sequence);
  EXPECT_EQ(x.id.index, y.id.index);
  EXPECT_EQ(x.id.digest, y.id.digest);
  EXPECT_EQ(x.message_nbytes, y.message_nbytes);
  EXPECT_EQ(x.offset, y.offset);
  EXPECT_EQ(x.segment_nbytes, y.segment_nbytes);
  EXPECT_EQ(x.description_nbytes, y.description_nbytes);
}

TEST(Frame, LayoutIsTheOneInTheSpecification) {
  FrameHeader h = data_header();
  h.message_nbytes = 0x6162636465666768;
  h.offset = 0x7172737475767778;  // encode() does not check this; decode() would refuse it
  h.segment_nbytes = 0x81828384;
  h.description_nbytes = 0x41424344;
  const HeaderBytes b = encoded(h);
  const uint8_t expected[60] = {'P',  'C',  'F',  '1',  1,    1,    2,    0,    4,    3,    2,    1,
                                0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x44, 0x43, 0x42, 0x41,
                                0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x58, 0x57, 0x56, 0x55,
                                0x54, 0x53, 0x52, 0x51, 0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61,
                                0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71, 0x84, 0x83, 0x82, 0x81};
  EXPECT_EQ(std::memcmp(b.data(), expected, 60), 0);
  HeaderBytes signed_again = b;
  sign(signed_again);
  EXPECT_EQ(b, signed_again);
}

TEST(Frame, EveryTypeReadsBackAsWritten) {
  for (uint8_t type = 1; type <= 9; ++type) {
    FrameHeader h = data_header();
    h.type = static_cast<FrameType>(type);
    if (h.type == FrameType::kRequest || h.type == FrameType::kClear) h.offset = h.segment_nbytes = 0;
    if (h.type == FrameType::kCancel) h.message_nbytes = h.segment_nbytes = 0, h.offset = 3;
    if (h.type == FrameType::kCredit || h.type == FrameType::kGoodbye) {
      h = FrameHeader{.type = h.type, .epoch = 7, .id = {{0, StreamClass::kControl, 0}}};
      if (h.type == FrameType::kCredit) h.offset = 4096;
    }
    if (type >= static_cast<uint8_t>(FrameType::kNotice)) {
      h.id.stream.klass = StreamClass::kControl;
      h.offset = 0;
      h.message_nbytes = h.segment_nbytes = 77;
    }
    const Result<FrameHeader> read = decode(encoded(h));
    ASSERT_TRUE(read.is_ok()) << int{type} << ": " << read.status().to_string();
    expect_equal(read.value(), h);
  }
}

// Bytes 20 to 23: the index of a collective's message, the description's size of a point-to-point
// message.
TEST(Frame, OnlyWhatBeginsAMessageHasADescription) {
  FrameHeader request = data_header();
  request.type = FrameType::kRequest;
  request.offset = request.segment_nbytes = 0;
  FrameHeader eager = data_header();
  eager.flags = kFlagEager;
  eager.offset = 0;
  eager.message_nbytes = eager.segment_nbytes;
  for (FrameHeader h : {request, eager}) {
    h.description_nbytes = kMaxDescriptionBytes;
    ASSERT_TRUE(decode(encoded(h)).is_ok());
    expect_equal(decode(encoded(h)).value(), h);
    h.description_nbytes = kMaxDescriptionBytes + 1;
    EXPECT_FALSE(decode(encoded(h)).is_ok());
  }
  FrameHeader withdrawn = request, clear = request, later = data_header();
  withdrawn.flags = kFlagWithdrawn;
  clear.type = FrameType::kClear;
  for (FrameHeader h : {withdrawn, clear, later}) {
    EXPECT_TRUE(decode(encoded(h)).is_ok());
    h.description_nbytes = 1;
    EXPECT_FALSE(decode(encoded(h)).is_ok());
  }
  FrameHeader collective = data_header();
  collective.id.stream.klass = StreamClass::kCollective;
  collective.id.index = 0x41424344;
  expect_equal(decode(encoded(collective)).value(), collective);
}

TEST(Frame, EverySingleFlippedBitIsFound) {
  const HeaderBytes good = encoded(data_header());
  ASSERT_TRUE(decode(good).is_ok());
  for (std::size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(decode(bad).status().code(), Code::kPeerFailure) << "bit " << bit;
  }
}

TEST(Frame, FieldsOutOfRangeAreRefusedEvenWithARightChecksum) {
  const auto refused = [](auto change) {
    FrameHeader h = data_header();
    change(h);
    return !decode(encoded(h)).is_ok();
  };
  EXPECT_FALSE(refused([](FrameHeader&) {}));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = static_cast<FrameType>(0); }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = static_cast<FrameType>(10); }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.id.stream.klass = static_cast<StreamClass>(3); }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.flags = 2; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.flags = 0x80; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.flags = kFlagEager; })) << "eager but only a part";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.segment_nbytes = 0; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.segment_nbytes = 193; })) << "behind the end";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.segment_nbytes = 63; })) << "not the last, no multiple of 64";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.segment_nbytes = kMaxSegmentBytes + 64, h.offset = 0; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.segment_nbytes = 0xffffffff; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.offset = h.message_nbytes + 1; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.offset = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.offset = ~uint64_t{0} - 63, h.message_nbytes = ~uint64_t{0}; }))
      << "overflow";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kRequest, h.offset = 0; })) << "payload";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kClear, h.segment_nbytes = 0; })) << "offset";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kCredit, h.segment_nbytes = 0; }))
      << "names a message";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kCancel, h.message_nbytes = 0; }))
      << "payload";
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kCancel, h.segment_nbytes = 0; })) << "size";
  EXPECT_TRUE(refused([](FrameHeader& h) {
    h = {.type = FrameType::kGoodbye, .id = {{0, StreamClass::kControl, 0}}, .offset = 1};
  }));
}

TEST(Frame, ControlMessagesAreWholeAndOfTheirOwnClass) {
  const auto refused = [](auto change) {
    FrameHeader h = {.type = FrameType::kNotice, .id = {{5, StreamClass::kControl, 0}, 6}};
    h.message_nbytes = h.segment_nbytes = 100;
    change(h);
    return !decode(encoded(h)).is_ok();
  };
  EXPECT_FALSE(refused([](FrameHeader& h) { h.flags = kFlagAsks | kFlagAsksWhere | kFlagWhereFollows; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.id.stream.klass = StreamClass::kCollective; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.message_nbytes = 101; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.message_nbytes = 200, h.offset = 100; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.flags = 8; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kCancel, h.flags = kFlagAsks; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kPing, h.flags = kFlagAsksWhere; }));
  EXPECT_TRUE(refused([](FrameHeader& h) { h.type = FrameType::kDead, h.flags = kFlagAsks; }));
}

TEST(Frame, AnotherVersionIsNamedInTheError) {
  HeaderBytes b = encoded(data_header());
  b[4] = std::byte{2};
  sign(b);
  const std::string text = decode(b).status().message();
  EXPECT_NE(text.find("version 2"), std::string::npos) << text;
  EXPECT_NE(text.find("version 1"), std::string::npos) << text;
}

TEST(Frame, RandomBytesNeverPassAsAFrame) {
  std::mt19937 random(1);
  HeaderBytes b;
  for (int i = 0; i < 100000; ++i) {
    for (std::byte& byte : b) byte = static_cast<std::byte>(random() & 0xff);
    EXPECT_FALSE(decode(b).is_ok());
  }
}

}  // namespace
}  // namespace pc
