// What lies at the beginning of a rank's shared memory, for all who share it to find the rest. Everything has one writer, its
// owner; the others read, and trust no number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/local_peers.h"

namespace pc {

inline constexpr uint64_t kSegmentMagic = 0x34306d6873637970;  // "pycshm04"
// Of cache lines that different ranks write. Two cache lines, because some processors fetch them in pairs.
inline constexpr std::size_t kCacheLinePair = 128;
inline constexpr std::size_t kMaxGroups = 1024;    // open at the same time
inline constexpr std::size_t kMaxChannels = 1024;  // ranks of one domain that send messages through it

struct alignas(4096) SegmentHeader {
  std::atomic<uint64_t> magic{0};  // not 0: this rank has come so far
  // Who can read these bytes in this rank's private memory can read all of it; engine/shm. pid 0: nobody shall.
  std::atomic<uint64_t> pid{0}, proof_address{0};
  std::atomic<uint64_t> proof[2] = {};
  std::atomic<int64_t> core{0};  // plus 1, that this rank was last seen waiting on (core balancer.h)
  // Not 0: this rank sleeps, and who writes for it notifies it, once for each number.
  alignas(kCacheLinePair) std::atomic<uint32_t> asleep{0};
  struct alignas(16) Group {
    static constexpr uint64_t kClosed = uint64_t{1} << 63;  // this rank reads nothing of that group any more
    std::atomic<uint64_t> id{0};                            // plus 1; 0: the entry was never used
    std::atomic<uint64_t> offset{0};  // stays when the entry is used again for another group
  };
  alignas(kCacheLinePair) std::atomic<uint64_t> groups_made{0};  // changes with each
  Group groups[kMaxGroups];                                      // where the area of each is; engine/shm
  // Where this rank's channel to each rank of the domain is, in the order of the ranks; 0: there is none yet.
  static constexpr uint64_t kRefused = ~uint64_t{0};  // and there will be none
  alignas(kCacheLinePair) std::atomic<uint64_t> channels[kMaxChannels];
};
static_assert(sizeof(SegmentHeader) <= LocalPeers::kFirstNbytes);

}  // namespace pc
