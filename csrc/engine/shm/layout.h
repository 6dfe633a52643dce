// What lies in a rank's shared memory. Everything has one writer, its owner; the others read, and trust no number.
//
//   SegmentHeader            at offset 0 (shm/segment_header.h): who sleeps, and where the area of each group is
//   GroupArea            one per group, made by its members before their first call
//   rings                two per group, made before the first message that does not fit into a slot
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/segment_header.h"

namespace pc::shm {

inline constexpr std::size_t kInlineNbytes = 56;

// Announces one call of its owner: low half, the call's number; high half, its fingerprint. Two slots take
// turns.
struct alignas(kCacheLinePair) CallSlot {
  std::atomic<uint64_t> word{0};
  alignas(8) std::byte payload[kInlineNbytes] = {};  // the message, or a Place
};

// A message that lies in the ring.
struct Place {
  uint64_t position = 0, nbytes = 0;
};

// What follows the slot in a call of many rounds: the messages of its rounds, in order. Entry `count` %
// kEntries is next.
inline constexpr std::size_t kEntries = 128;
struct Entry {
  std::atomic<uint64_t> round{0};  // see round_word()
  std::atomic<uint64_t> position{0};
};
struct Stream {
  alignas(kCacheLinePair) std::atomic<uint64_t> count{0};
  // Up to which round this rank has read what the others put into their streams of this kind.
  alignas(kCacheLinePair) std::atomic<uint64_t> read{0};
  alignas(kCacheLinePair) Entry entries[kEntries];
};
enum StreamKind : uint8_t { kInputs, kResults };

inline constexpr uint32_t kAllRounds = ~uint32_t{0};
// Rounds in the order of time, as a difference of words says: the call's number above the round's.
inline constexpr uint64_t round_word(uint64_t sequence, uint32_t round) { return sequence << 32 | round; }
inline bool reached(uint64_t word, uint64_t wanted) { return static_cast<int64_t>(word - wanted) >= 0; }

struct alignas(4096) GroupArea {
  CallSlot slots[2];
  Stream streams[2];
  // The last call in rounds in which this rank has read all it needs, and the last that it gave up: from then on what others
  // read where it lies may change.
  alignas(kCacheLinePair) std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> gave_up{0};
  alignas(kCacheLinePair) std::atomic<uint64_t> ring_offset{
      0};  // in the owner's memory; 0: there is none yet
  std::atomic<uint64_t> ring_nbytes{0};
  std::atomic<uint64_t> reads{0};  // the other members' private memory: a Reads, once that is known
};
enum Reads : uint64_t { kReadsUnknown, kReadsAll, kReadsNotAll };

}  // namespace pc::shm
