// The contents of a rank's shared memory. Only its owner writes it. The other ranks read it, and
// check every number before they use it.
//
//   SegmentHeader   at offset 0 (shm/segment_header.h): whether the rank sleeps, areas of groups
//   GroupArea       one per group, made by its members before their first call
//   rings           two per group, made before the first message that does not fit into a slot
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/segment_header.h"

namespace pc::shm {

inline constexpr std::size_t kInlineNbytes = 56;

// Announces one call of its owner. The low half of `word` is the call's number, the high half its
// fingerprint. The owner alternates between two slots.
struct alignas(kCacheLinePair) CallSlot {
  std::atomic<uint64_t> word{0};
  alignas(8) std::byte payload[kInlineNbytes] = {};  // the message, or a Place
};

// The place of a message in the ring.
struct Place {
  uint64_t position = 0, nbytes = 0;
};

// A call in rounds publishes its messages in streams, one entry per round, in order. Entry `count`
// % kEntries is written next.
inline constexpr std::size_t kEntries = 128;
struct Entry {
  std::atomic<uint64_t> round{0};  // see round_word()
  std::atomic<uint64_t> position{0};
};
struct Stream {
  alignas(kCacheLinePair) std::atomic<uint64_t> count{0};
  // The round (round_word()) up to which this rank has read the other ranks' streams of this kind.
  alignas(kCacheLinePair) std::atomic<uint64_t> read{0};
  alignas(kCacheLinePair) Entry entries[kEntries];
};
enum StreamKind : uint8_t { kInputs, kResults };

inline constexpr uint32_t kAllRounds = ~uint32_t{0};
// The high half is the call's number, the low half the round's. Words are compared by their
// difference modulo 2^64. A later round has a larger word.
inline constexpr uint64_t round_word(uint64_t sequence, uint32_t round) { return sequence << 32 | round; }
inline bool reached(uint64_t word, uint64_t wanted) { return static_cast<int64_t>(word - wanted) >= 0; }

struct alignas(4096) GroupArea {
  CallSlot slots[2];
  Stream streams[2];
  // `done`: the number of the last call in rounds in which this rank has read all that it needs.
  // `gave_up`: the number of the last call that it gave up; from then on its exposed arrays may
  // change.
  alignas(kCacheLinePair) std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> gave_up{0};
  // position of the rings in the owner's memory; 0: there are none yet
  alignas(kCacheLinePair) std::atomic<uint64_t> ring_offset{0};
  std::atomic<uint64_t> ring_nbytes{0};
  std::atomic<uint64_t> reads{0};  // whether this rank can read the other members' private memory: a Reads
};
enum Reads : uint64_t { kReadsUnknown, kReadsAll, kReadsNotAll };

}  // namespace pc::shm
