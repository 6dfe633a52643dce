// Selects the path by which a rank passes a very large array, in a call that only moves data, to
// the other ranks: through its ring, or by a copy that the kernel makes out of its private memory.
// Which is faster depends on the processor, on where a virtual machine has placed its cores, on the
// collective and on the size. So both are tried now and then, and the ring is left only for a path
// that is clearly faster. A trial is two consecutive calls: in the first one the kernel's tables
// and the readers' caches are cold, which made the kernel's copy look five times as slow as it is.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "plan/plan.h"

namespace pc::shm {

enum class CopyPath : uint8_t {
  kRing,           // a copy into the ring (shm/store_choice.h), and one out of it
  kPrivateMemory,  // the kernel copies it out of private memory (shm/process_memory.h)
};
inline constexpr int kCopyPathCount = 2;

// For one group with members that can read each other's private memory. Each member decides for its
// own data. Thread-safety: none; the holder of the progress lock.
class CopyPathTuner {
 public:
  struct Kind {
    Collective collective;
    bool is_root;
    std::size_t nbytes;
  };
  struct Chosen {
    CopyPath path;
    bool on_trial;  // call took() when the call has ended successfully
  };

  Chosen next(const Kind& kind) {
    Tried& tried = tried_[index(kind)];
    // call 0 is not timed: it may be the first to touch the arrays
    const uint32_t call = tried.calls++ % kAgain;
    if (call >= 1 && call <= kTrial) return {CopyPath::kRing, true};
    if (call > kTrial && call <= 2 * kTrial) return {CopyPath::kPrivateMemory, true};
    const auto& [ring, cma] = tried.took;
    return {cma < ring / 5 * 4 ? CopyPath::kPrivateMemory : CopyPath::kRing, false};
  }
  // `time` is from when this rank began until no rank needed anything of this call any more. The
  // rank that entered the call last did not wait, so the shortest time counts. That time grows
  // slowly towards later ones, since virtual machines change.
  void took(CopyPath path, const Kind& kind, std::chrono::nanoseconds time) {
    std::chrono::nanoseconds& known = tried_[index(kind)].took[static_cast<std::size_t>(path)];
    known = time < known ? time : known + std::min((time - known) / 4, known / 4);
  }

 private:
  static constexpr uint32_t kAgain = 256, kTrial = 2;  // calls
  static constexpr std::size_t kLeast = 65536;
  static constexpr std::size_t kSizes = 16;  // size classes by powers of two, up to 1 GiB and more
  static constexpr std::chrono::nanoseconds kUnknown = std::chrono::hours(1);
  struct Tried {
    std::array<std::chrono::nanoseconds, kCopyPathCount> took = {kUnknown, kUnknown};
    uint32_t calls = 0;
  };
  static std::size_t index(const Kind& kind) {
    const std::size_t role = 2 * static_cast<std::size_t>(kind.collective) + (kind.is_root ? 1 : 0);
    return role * kSizes +
           std::min(static_cast<std::size_t>(std::bit_width(kind.nbytes / kLeast)), kSizes - 1);
  }
  std::array<Tried, std::size_t{2}* kCollectiveCount* kSizes> tried_ = {};
};

}  // namespace pc::shm
