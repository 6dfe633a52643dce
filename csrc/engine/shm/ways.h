// How a rank gives the others what it has for them. Which way is fastest depends on the processor, on where a virtual machine has
// put its cores, on the size and on what is done with the bytes, by a factor of two either way: ordinary stores into lines that
// another core holds run at 2 to 25 GB/s. So all ways are tried, in turn, and the fastest is used.
// A trial is a few calls in a row: in the first of them the way's memory, the kernel's tables and the readers' caches are cold, which made
// the kernel's copy look five times as slow as it is.
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
  kLargeRing,  // when memory comes round again its lines have left the near caches; stores: transport/shm/store_choice.h
  kSmallRing,      // memory that stays in the near caches, by the processor's own copy (rep movsb)
  kPrivateMemory,  // not at all: the kernel copies it from where it lies (transport/shm/process_memory.h)
};
inline constexpr int kWayCount = 3;

class WaySet {
 public:
  WaySet& add(Way way) { return bits_ |= 1U << static_cast<unsigned>(way), *this; }
  bool has(int way) const { return (bits_ >> static_cast<unsigned>(way) & 1U) != 0; }

 private:
  unsigned bits_ = 0;
};

// Of one group. The members make the same calls, so they try at the same time. Thread-safety: none; the holder of the baton.
class Ways {
 public:
  static constexpr std::size_t kLeast = 4096;  // bytes; below it makes no difference
  struct Kind {
    Collective collective;
    bool is_root;
    std::size_t nbytes;
  };
  struct Chosen {
    Way way;
    bool on_trial;  // took() is to be called when it has ended well
  };

  // `possible`: one at least.
  Chosen next(const Kind& kind, WaySet possible) {
    Tried& tried = tried_[index(kind)];
    const bool is_long = kind.nbytes >= kLong;  // and disturbed less
    const bool is_first = tried.calls == 0;     // it finds arrays that nobody has touched
    const bool again = ++tried.calls % kAgain == 0;
    int best = -1, newest = -1;
    for (int way = 0; way < kWayCount; ++way) {
      if (!possible.has(way)) continue;
      if (best < 0 || tried.ways[at(way)].took < tried.ways[at(best)].took) best = way;
      if (newest < 0 || tried.ways[at(way)].trials < tried.ways[at(newest)].trials) newest = way;
    }
    if (tried.left == 0 && (again || (!is_first && tried.ways[at(newest)].trials < (is_long ? 1 : 2)))) {
      ++tried.ways[at(newest)].trials;
      tried.trying = newest;
      tried.left = is_long ? 2 : 4;
    }
    if (tried.left == 0) return {static_cast<Way>(best), false};
    --tried.left;
    return possible.has(tried.trying) ? Chosen{static_cast<Way>(tried.trying), true}
                                      : Chosen{static_cast<Way>(best), false};
  }
  // From when this rank began until nobody had to do anything for this call any more. Who came last did not wait: so the
  // shortest time counts. It is forgotten slowly, for virtual machines change.
  void took(Way way, const Kind& kind, std::chrono::nanoseconds time) {
    std::chrono::nanoseconds& known = tried_[index(kind)].ways[static_cast<std::size_t>(way)].took;
    known = time < known ? time : known + std::min((time - known) / 4, known / 4);
  }

 private:
  static constexpr uint32_t kAgain = 256;
  static constexpr std::size_t kLong = 4UL * 1024 * 1024;
  static constexpr std::size_t kSizes = 16;  // classes by powers of two, up to 128 MiB and more
  struct One {
    std::chrono::nanoseconds took = std::chrono::hours(1);
    uint32_t trials = 0;
  };
  struct Tried {
    std::array<One, kWayCount> ways = {};
    uint32_t calls = 0;
    int trying = 0;
    uint32_t left = 0;  // calls of this trial
  };
  static std::size_t at(int way) { return static_cast<std::size_t>(way); }
  static std::size_t index(const Kind& kind) {
    const std::size_t size = static_cast<std::size_t>(std::bit_width(kind.nbytes / kLeast));
    const std::size_t role = 2 * static_cast<std::size_t>(kind.collective) + (kind.is_root ? 1 : 0);
    return role * kSizes + std::min(size, kSizes - 1);
  }
  std::array<Tried, 2 * kCollectiveCount* kSizes> tried_ = {};
};

}  // namespace pc::shm
