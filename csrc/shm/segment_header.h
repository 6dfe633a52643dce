// The header at the beginning of a rank's shared memory, by which its local peers find the rest of
// that memory. Only the owner writes the header; the other ranks read it, and trust no number in
// it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/local_peers.h"

namespace pc {

inline constexpr uint64_t kSegmentMagic = 0x34306d6873637970;  // "pycshm04"
// Alignment of data that different ranks write. Two cache lines, because some processors fetch them
// in pairs.
inline constexpr std::size_t kCacheLinePair = 128;
inline constexpr std::size_t kMaxGroups = 1024;    // open at the same time
inline constexpr std::size_t kMaxChannels = 1024;  // no channels in a domain with more ranks

struct alignas(4096) SegmentHeader {
  std::atomic<uint64_t> magic{0};  // not 0 once the header is initialized
  // `proof` has random numbers that are also in this rank's private memory, at `proof_address`. A
  // rank that can read them there, in process `pid`, can read all of this rank's memory
  // (engine/shm). If `pid` is 0, no rank may read that memory.
  std::atomic<uint64_t> pid{0}, proof_address{0};
  std::atomic<uint64_t> proof[2] = {};
  std::atomic<int64_t> core{0};  // 1 + the core on which this rank was last seen waiting (core_balancer.h)
  // Not 0 while this rank sleeps; the value differs in each sleep. A rank that writes data for this
  // rank during a sleep notifies this rank, once for each value.
  alignas(kCacheLinePair) std::atomic<uint32_t> asleep{0};
  struct alignas(16) Group {
    // flag in `id`: this rank no longer reads any data of that group
    static constexpr uint64_t kClosed = uint64_t{1} << 63;
    std::atomic<uint64_t> id{0};  // 1 + the group's id; 0: the entry was never used
    // offset of the group's area; if the entry is reused for another group, the area is kept
    std::atomic<uint64_t> offset{0};
  };
  alignas(kCacheLinePair) std::atomic<uint64_t> groups_made{0};  // incremented for each new group
  Group groups[kMaxGroups];  // the positions of the groups' areas; engine/shm
  // The offsets of this rank's channels to the ranks of its domain, in rank order; 0 while a
  // channel does not exist.
  static constexpr uint64_t kRefused = ~uint64_t{0};  // there will be no channel
  alignas(kCacheLinePair) std::atomic<uint64_t> channels[kMaxChannels];
};
static_assert(sizeof(SegmentHeader) <= LocalPeers::kFirstNbytes);

}  // namespace pc
