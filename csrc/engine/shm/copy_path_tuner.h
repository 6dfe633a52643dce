// Selects the path by which a rank passes a very large array to the other ranks in a call that only
// moves data: through the rank's ring, or by a copy that the kernel makes out of the rank's private
// memory. Which path is faster depends on the processor, on where a virtual machine has placed its
// cores, on the collective and on the size. So both paths are timed now and then, and private
// memory is used only if it is clearly faster. A path is timed in two consecutive calls: in the
// first call the kernel's tables and the readers' caches are cold, which made the kernel's copy
// look five times as slow as it is.
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
  kRing,           // one copy into the ring (shm/store_choice.h), and one copy out of it
  kPrivateMemory,  // the kernel copies it out of private memory (shm/process_memory.h)
};
inline constexpr int kCopyPathCount = 2;

// A group has one tuner. Each member decides for its own data. Thread-safety: none; only the holder
// of the progress lock uses it.
class CopyPathTuner {
 public:
  struct Kind {
    Collective collective;
    bool is_root;
    std::size_t nbytes;
  };
  struct Chosen {
    CopyPath path;
    bool on_trial;  // this call is timed: call took() when it has ended successfully
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
  // `time` runs from when this rank began the call until no rank needs data of the call any more.
  // It includes the wait for ranks that enter the call later, so the shortest time counts. A longer
  // time raises the recorded one slowly, since virtual machines change.
  void took(CopyPath path, const Kind& kind, std::chrono::nanoseconds time) {
    std::chrono::nanoseconds& known = tried_[index(kind)].took[static_cast<std::size_t>(path)];
    known = time < known ? time : known + std::min((time - known) / 4, known / 4);
  }

 private:
  // in calls: both paths are timed every kAgain calls, each of them in kTrial calls
  static constexpr uint32_t kAgain = 256, kTrial = 2;
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
