// Chooses the kind of stores with which a rank fills memory that another core has read. If the two
// cores share a near cache, ordinary stores run at 30 GB/s and stores past the caches at 20 GB/s;
// otherwise at 4 and 20 GB/s. A virtual machine moves its cores while a program runs, so the
// writing rank times some pieces. A kind other than the usual one may be eight times as slow, so it
// is tried on a small piece; only stores past the caches are tried on a whole piece.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pc {

enum class Stores : uint8_t {
  kVector,      // ordinary vector stores
  kString,      // the processor's own copy (rep movsb), where memcpy uses it
  kPastCaches,  // vector stores past the caches
};
inline constexpr int kStoresCount = 3;

// Thread-safety: none; used only by the writing rank.
class StoreChoice {
 public:
  static constexpr std::size_t kLeast = 4096;  // bytes; for a smaller piece the kind makes no difference
  struct Next {
    Stores stores;
    std::size_t nbytes;
    bool is_timed;  // call took() afterwards
  };

  Stores usual() const { return usual_; }
  // Returns the kind of stores for the first bytes of a piece of `nbytes`, and the number of these
  // bytes.
  Next next(std::size_t nbytes) {
    if (nbytes < kLeast) return {Stores::kVector, nbytes, false};
    ++pieces_;
    if (pieces_ % (pieces_ < kEarly ? kOftener : kSeldom) == 0) {
      alternative_ = (alternative_ + 1) % kStoresCount;
      if (static_cast<Stores>(alternative_) == usual_) alternative_ = (alternative_ + 1) % kStoresCount;
      const Stores other = static_cast<Stores>(alternative_);
      return {other, other == Stores::kPastCaches ? nbytes : std::min(nbytes, kTry), true};
    }
    return {usual_, nbytes, in_doubt_ || pieces_ % kTimed == 0};
  }
  void took(Stores stores, std::size_t nbytes, std::chrono::nanoseconds time) {
    Known& known = known_[static_cast<std::size_t>(stores)];
    const double cost = std::max(static_cast<double>(time.count()) / static_cast<double>(nbytes), kLeastCost);
    const double before = known.cost;
    const bool is_slow = before >= 0 && cost > kSlower * before;
    // A thread may be interrupted, so a single slow measurement of the usual stores is ignored; a
    // second one in a row raises their cost, step by step.
    if (stores == usual_ && !std::exchange(in_doubt_, is_slow) && is_slow) return;
    known.cost = before < 0 || cost < before ? cost : before + std::min(cost - before, before) / 2;
    for (int each = 0; each < kStoresCount; ++each) {
      if (weight(each) < kClearly * weight(static_cast<int>(usual_))) usual_ = static_cast<Stores>(each);
    }
  }

 private:
  // numbers of pieces: every 8th is timed, every 64th (at first every 4th) tries another kind
  static constexpr uint32_t kTimed = 8, kSeldom = 64;
  static constexpr uint32_t kEarly = 64, kOftener = 4;
  static constexpr std::size_t kTry = 8192;
  static constexpr double kSlower = 1.5, kClearly = 0.85;
  // factor of the cost, because the reader must fetch data that was stored past the caches
  static constexpr double kFetched = 3;
  static constexpr double kUnknown = 1e9;
  static constexpr double kLeastCost = 0.01;  // a coarse clock may measure 0
  struct Known {
    double cost = -1;  // nanoseconds per byte
  };
  double weight(int which) const {
    const double cost = known_[static_cast<std::size_t>(which)].cost;
    return cost < 0 ? kUnknown : static_cast<Stores>(which) == Stores::kPastCaches ? kFetched * cost : cost;
  }

  std::array<Known, kStoresCount> known_ = {};
  Stores usual_ = Stores::kVector;
  bool in_doubt_ = true;
  uint32_t pieces_ = 0;
  int alternative_ = 0;
};

}  // namespace pc
