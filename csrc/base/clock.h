// The clock by which waits and durations are measured: the steady clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace pc {

using TimePoint = std::chrono::steady_clock::time_point;

inline TimePoint now() { return std::chrono::steady_clock::now(); }
inline int64_t to_ns(TimePoint at) { return at.time_since_epoch() / std::chrono::nanoseconds(1); }
inline int64_t now_ns() { return to_ns(now()); }

}  // namespace pc
