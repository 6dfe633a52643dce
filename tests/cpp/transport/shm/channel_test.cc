// A slot of a channel is read as it was written. Content that no rank of ours writes is refused.
#include "transport/shm/channel.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace pc {
namespace {

FrameHeader eager(uint32_t nbytes, uint32_t description_nbytes) {
  FrameHeader header;
  header.flags = kFlagEager;
  header.epoch = 3;
  header.id = {{7, StreamClass::kPointToPoint, 9}, 11, 0, 13};
  header.message_nbytes = header.segment_nbytes = nbytes;
  header.description_nbytes = description_nbytes;
  return header;
}

bool same(const FrameHeader& a, const FrameHeader& b) {
  HeaderBytes of_a, of_b;
  encode(a, of_a);
  encode(b, of_b);
  return of_a == of_b;
}

SlotWords through_a_slot(const SlotWords& words) {
  const auto slot = std::make_unique<ChannelSlot>();
  std::memcpy(slot->bytes, &words, sizeof words);
  SlotWords copy;
  copy_words(*slot, copy);
  return copy;
}

TEST(ChannelSlot, every_kind_of_frame_is_read_as_it_was_written) {
  std::vector<FrameHeader> headers = {eager(0, 0), eager(8, 3), eager(80, 8), eager(81, 8),
                                      eager(65536, 1024)};
  FrameHeader segment = eager(128 * 1024, 0);
  segment.flags = 0;
  segment.message_nbytes = uint64_t{1} << 40;
  segment.offset = uint64_t{1} << 39;
  headers.push_back(segment);
  FrameHeader collective = eager(24, 0);
  collective.id.stream.klass = StreamClass::kCollective;
  collective.id.index = 5;
  headers.push_back(collective);
  FrameHeader credit;
  credit.type = FrameType::kCredit;
  credit.epoch = 3;
  credit.id.stream.klass = StreamClass::kControl;
  credit.offset = 4096;
  headers.push_back(credit);
  for (const FrameHeader& header : headers) {
    const Result<FrameHeader> back = header_of(through_a_slot(words_of(header)), 3);
    ASSERT_TRUE(back.is_ok()) << back.status().to_string();
    EXPECT_TRUE(same(back.value(), header)) << header.segment_nbytes << " bytes";
  }
}

TEST(ChannelSlot, a_small_message_and_its_description_fit_into_one_cache_line) {
  static_assert(sizeof(std::atomic<uint64_t>) + SlotWords::kExtentEnd == 64);
  const SlotWords words = words_of(eager(8, 3));
  EXPECT_TRUE(words.is_short != 0);
  EXPECT_LE(SlotWords::kHead + 8 + 3, SlotWords::kExtentEnd);
}

TEST(ChannelSlot, what_no_rank_of_ours_puts_there_is_refused) {
  const auto refused = [](auto&& spoil) {
    SlotWords words = words_of(eager(8, 3));
    spoil(words);
    const Result<FrameHeader> header = header_of(through_a_slot(words), 3);
    return !header.is_ok() && header.status().code() == Code::kPeerFailure;
  };
  EXPECT_FALSE(refused([](SlotWords&) {}));
  EXPECT_TRUE(refused([](SlotWords& words) { words.type = 0; }));
  EXPECT_TRUE(refused([](SlotWords& words) { words.type = 200; }));
  EXPECT_TRUE(refused([](SlotWords& words) { words.klass = 3; }));
  EXPECT_TRUE(refused([](SlotWords& words) { words.flags = 0xFF; }));
  EXPECT_TRUE(refused([](SlotWords& words) { words.flags = 0; })) << "a short line is an eager message";
  EXPECT_TRUE(refused([](SlotWords& words) { words.index = SlotWords::kCapacity << 16 | 1; }));
  EXPECT_TRUE(refused([](SlotWords& words) { words.index = ~uint32_t{0}; }));
  EXPECT_TRUE(refused([](SlotWords& words) {
    words.is_short = 0;
    words.index = 0;
    words.extent = {~uint64_t{0}, 0, ~uint32_t{0}};
  }));
}

TEST(ChannelRing, frames_lie_together_and_both_sides_count_alike) {
  constexpr uint64_t kRing = 1024;
  EXPECT_EQ(place_in_ring(0, 1024, kRing), 0U);
  EXPECT_EQ(place_in_ring(960, 64, kRing), 960U);
  EXPECT_EQ(place_in_ring(960, 65, kRing), 1024U) << "it does not fit before the end";
  EXPECT_EQ(end_in_ring(1024, 65), 1024U + 128);
  EXPECT_EQ(end_in_ring(960, 0), 960U);
}

}  // namespace
}  // namespace pc
