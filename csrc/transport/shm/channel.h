// How the frames of one rank for another lie in its shared memory. Two rings: slots, one for each frame,
// whose stamp says that it is there, and bytes, for what does not fit into a slot. A small message is one
// cache line, which is flag, header and payload.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shm/segment_header.h"
#include "wire/frame.h"

namespace pc {

struct alignas(kCacheLinePair) ChannelSlot {
  static constexpr std::size_t kBytes = kCacheLinePair - sizeof(uint64_t);
  std::atomic<uint64_t> stamp{0};  // this frame's number in the channel, from 1
  alignas(8) std::byte bytes[kBytes] = {};
};

inline constexpr std::size_t kChannelSlots = 1024;
struct alignas(4096) Channel {
  // What its owner has taken from the other rank's channel, so far as it has said so.
  std::atomic<uint64_t> slots_taken{0}, bytes_taken{0};
  std::atomic<uint64_t> ring_nbytes{0};  // of what follows this struct
  std::atomic<uint64_t> ended{0};        // not 0: its owner gave the other's channel up
  // How far its owner has come with what it puts into the ring of bytes: a frame with more than kPutAtOnce
  // and at most kEagerBytes there is announced before it is whole, so that the other rank can copy behind.
  alignas(kCacheLinePair) std::atomic<uint64_t> bytes_put{0};
  ChannelSlot slots[kChannelSlots];
};
inline constexpr std::size_t kPutAtOnce = 8192;

// Where in the ring of bytes the next frame begins that has `nbytes` there: they lie together. Both sides
// count alike.
inline uint64_t place_in_ring(uint64_t position, uint64_t nbytes, uint64_t ring_nbytes) {
  const uint64_t to_end = ring_nbytes - position % ring_nbytes;
  return nbytes <= to_end ? position : position + to_end;
}
inline uint64_t end_in_ring(uint64_t place, uint64_t nbytes) { return place + (nbytes + 63) / 64 * 64; }

// The words of a slot. A short message has payload and description in the slot, others in the ring of bytes,
// in this order.
struct SlotWords {
  uint8_t type = 0, klass = 0, flags = 0, is_short = 0;
  uint32_t group = 0, tag = 0;
  // As in the header of the wire. Short: bytes of the description, bytes of the payload << 16.
  uint32_t index = 0;
  uint64_t sequence = 0, digest = 0;
  // What is before kExtentEnd lies in one cache line with the stamp.
  static constexpr std::size_t kHead = 32, kExtentEnd = 56;
  static constexpr std::size_t kCapacity = ChannelSlot::kBytes - kHead;
  union {
    std::byte data[kCapacity];
    struct {
      uint64_t message_nbytes, offset;
      uint32_t segment_nbytes;
    } extent;
  };
};
static_assert(sizeof(SlotWords) == ChannelSlot::kBytes);

inline bool is_short(const FrameHeader& header) {
  return header.type == FrameType::kData && (header.flags & kFlagEager) != 0 &&
         header.id.stream.klass == StreamClass::kPointToPoint &&
         header.segment_nbytes + std::size_t{header.description_nbytes} <= SlotWords::kCapacity;
}

// All but `data` of a short one.
inline SlotWords words_of(const FrameHeader& header) {
  SlotWords words;
  words.type = static_cast<uint8_t>(header.type);
  words.klass = static_cast<uint8_t>(header.id.stream.klass);
  words.flags = header.flags;
  words.group = header.id.stream.group;
  words.tag = header.id.stream.tag;
  words.sequence = header.id.sequence;
  words.digest = header.id.digest;
  words.is_short = is_short(header) ? 1 : 0;
  if (words.is_short != 0) {
    words.index = header.description_nbytes | header.segment_nbytes << 16;
  } else {
    words.index =
        header.id.stream.klass == StreamClass::kPointToPoint ? header.description_nbytes : header.id.index;
    words.extent = {header.message_nbytes, header.offset, header.segment_nbytes};
  }
  return words;
}

// Its owner may write on: only the copy is looked at.
inline void copy_words(const ChannelSlot& slot, SlotWords& words) {
  std::memcpy(static_cast<void*>(&words), slot.bytes, SlotWords::kExtentEnd);
  if (words.is_short != 0 &&
      (words.index & 0xFFFF) + (words.index >> 16) > SlotWords::kExtentEnd - SlotWords::kHead)
    std::memcpy(static_cast<void*>(&words), slot.bytes, sizeof words);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// What no frame of ours has is an error.
inline Result<FrameHeader> header_of(const SlotWords& words, uint32_t epoch) {
  FrameHeader header;
  header.type = static_cast<FrameType>(words.type);
  header.flags = words.flags;
  header.epoch = epoch;
  header.id = {
      {words.group, static_cast<StreamClass>(words.klass), words.tag}, words.sequence, 0, words.digest};
  if (words.is_short != 0) {
    header.description_nbytes = words.index & 0xFFFF;
    header.segment_nbytes = words.index >> 16;
    header.message_nbytes = header.segment_nbytes;
    if (!is_short(header)) return Status(Code::kPeerFailure, "a slot holds more than a slot can");
  } else {
    const bool is_message = header.id.stream.klass == StreamClass::kPointToPoint;
    (is_message ? header.description_nbytes : header.id.index) = words.index;
    header.message_nbytes = words.extent.message_nbytes;
    header.offset = words.extent.offset;
    header.segment_nbytes = words.extent.segment_nbytes;
  }
  PC_TRY(check(header));
  return header;
}

}  // namespace pc
