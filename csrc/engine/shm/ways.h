// Which way a rank gives the others a large array that is only moved: through its ring, or not at all. Which one is faster depends on the
// processor, on where a virtual machine has put its cores, on the collective and on the size. So both are tried, and the fastest is taken.
// A trial is a few calls in a row: in the first of them the kernel's tables and the readers' caches are cold, which made the kernel's copy
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

enum class Way : uint8_t {
  kRing,           // a copy there (transport/shm/store_choice.h), and one out of it
  kPrivateMemory,  // the kernel copies it from where it lies (transport/shm/process_memory.h)
};
inline constexpr int kWayCount = 2;

// Of one group, where members read each other's private memory. Each decides for what it gives itself.
// Thread-safety: none; the holder of the baton.
class Ways {
 public:
  struct Kind {
    Collective collective;
    bool is_root;
    std::size_t nbytes;
  };
  struct Chosen {
    Way way;
    bool on_trial;  // took() is to be called when it has ended well
  };

  Chosen next(const Kind& kind) {
    Tried& tried = tried_[index(kind)];
    if (tried.calls == 0) inherit(kind, tried);
    const bool is_long = kind.nbytes >= kLong;  // and disturbed less
    const bool is_first = tried.calls == 0;     // it finds arrays that nobody has touched
    const bool again = ++tried.calls % kAgain == 0;
    const auto& [ring, far] = tried.ways;
    const int best = far.took < ring.took ? 1 : 0;
    const int next = ring.trials != far.trials ? (far.trials < ring.trials ? 1 : 0)
                     : tried.is_guessed        ? 1 - best
                                               : 0;
    const uint32_t enough = tried.is_guessed ? 0 : is_long ? 1 : 2;
    if (tried.left == 0 && (again || (!is_first && tried.ways[at(next)].trials < enough))) {
      ++tried.ways[at(next)].trials;
      tried.trying = next;
      tried.left = is_long ? 2 : 4;
    }
    if (tried.left == 0) return {static_cast<Way>(best), false};
    --tried.left;
    return {static_cast<Way>(tried.trying), true};
  }
  // From when this rank began until nobody had to do anything for this call any more. Who came last did not wait: so the
  // shortest time counts. It is forgotten slowly, for virtual machines change.
  void took(Way way, const Kind& kind, std::chrono::nanoseconds time) {
    std::chrono::nanoseconds& known = tried_[index(kind)].ways[static_cast<std::size_t>(way)].took;
    known = time < known ? time : known + std::min((time - known) / 4, known / 4);
  }

 private:
  static constexpr uint32_t kAgain = 256;
  static constexpr std::size_t kLeast = 4096, kLong = 4UL * 1024 * 1024;
  static constexpr std::size_t kSizes = 16;  // classes by powers of two, up to 128 MiB and more
  static constexpr std::size_t kAlike = 3;   // so many classes smaller
  static constexpr int kClearly = 2;
  static constexpr std::chrono::nanoseconds kUnknown = std::chrono::hours(1);
  struct One {
    std::chrono::nanoseconds took = kUnknown;
    uint32_t trials = 0;
  };
  struct Tried {
    std::array<One, kWayCount> ways = {};
    uint32_t calls = 0;
    int trying = 0;
    uint32_t left = 0;        // calls of this trial
    bool is_guessed = false;  // from calls with less
    bool is_measured() const {
      return !is_guessed && left == 0 && ways[0].took < kUnknown && ways[1].took < kUnknown;
    }
  };
  static std::size_t at(int way) { return static_cast<std::size_t>(way); }
  static std::size_t size_class(const Kind& kind) {
    return std::min(static_cast<std::size_t>(std::bit_width(kind.nbytes / kLeast)), kSizes - 1);
  }
  static std::size_t index(const Kind& kind) {
    const std::size_t role = 2 * static_cast<std::size_t>(kind.collective) + (kind.is_root ? 1 : 0);
    return role * kSizes + size_class(kind);
  }
  // What was clearly slower with somewhat less is not tried at first.
  void inherit(const Kind& kind, Tried& tried) const {
    for (std::size_t less = 1; less <= std::min(kAlike, size_class(kind)); ++less) {
      const Tried& smaller = tried_[index(kind) - less];
      if (!smaller.is_measured()) continue;
      const std::chrono::nanoseconds ring = smaller.ways[0].took, far = smaller.ways[1].took;
      tried.is_guessed = ring >= kClearly * far || far >= kClearly * ring;
      if (tried.is_guessed) tried.ways = {One{ring * (1 << less)}, One{far * (1 << less)}};
      return;
    }
  }
  std::array<Tried, 2 * kCollectiveCount* kSizes> tried_ = {};
};

}  // namespace pc::shm
