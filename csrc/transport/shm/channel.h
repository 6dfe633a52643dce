// The layout of the frames that one rank sends to one other rank, in the sender's shared memory.
// There are two rings. The ring of slots has one slot for each frame, with a stamp that marks the
// frame as present. The ring of bytes holds what does not fit into a slot. A small message is one
// cache line that holds stamp, header and payload.
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
  // How many slots and bytes the owner has taken from the other rank's channel; updated from time
  // to time.
  std::atomic<uint64_t> slots_taken{0}, bytes_taken{0};
  std::atomic<uint64_t> ring_nbytes{0};  // size of the ring of bytes that follows this struct
  std::atomic<uint64_t> ended{0};        // not 0 once the owner has given up the other rank's channel
  // How far the owner has filled the ring of bytes. A frame with more than kPutAtOnce and at most
  // kEagerBytes in the ring is announced before it is complete, so that the other rank can copy
  // while the owner still writes.
  alignas(kCacheLinePair) std::atomic<uint64_t> bytes_put{0};
  ChannelSlot slots[kChannelSlots];
};
inline constexpr std::size_t kPutAtOnce = 8192;

// Returns the position in the ring of bytes at which the next frame begins if it has `nbytes` in
// this ring. The bytes of a frame are contiguous. Both sides compute the same position.
inline uint64_t place_in_ring(uint64_t position, uint64_t nbytes, uint64_t ring_nbytes) {
  const uint64_t to_end = ring_nbytes - position % ring_nbytes;
  return nbytes <= to_end ? position : position + to_end;
}
inline uint64_t end_in_ring(uint64_t place, uint64_t nbytes) { return place + (nbytes + 63) / 64 * 64; }

// The contents of a slot. A short message has its payload and description in the slot. Every other
// message has them in the ring of bytes, in this order.
struct SlotWords {
  uint8_t type = 0, klass = 0, flags = 0, is_short = 0;
  uint32_t group = 0, tag = 0;
  // As in the wire header. For a short message it is the size of the description, plus the size of
  // the payload << 16.
  uint32_t index = 0;
  uint64_t sequence = 0, digest = 0;
  // The bytes before kExtentEnd share one cache line with the stamp.
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

// Returns the words for `header`. The caller fills in `data` of a short message.
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

// Copies the contents of a slot. Only the copy may be inspected, because the owner may still write
// to the slot.
inline void copy_words(const ChannelSlot& slot, SlotWords& words) {
  std::memcpy(static_cast<void*>(&words), slot.bytes, SlotWords::kExtentEnd);
  if (words.is_short != 0 &&
      (words.index & 0xFFFF) + (words.index >> 16) > SlotWords::kExtentEnd - SlotWords::kHead)
    std::memcpy(static_cast<void*>(&words), slot.bytes, sizeof words);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Returns an error if the words describe no frame that this library writes.
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
