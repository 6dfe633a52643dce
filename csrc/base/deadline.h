// The point in time by which an operation must end. It is absolute, so that the timeouts of nested
// waits cannot add up. State machines never read the clock: their caller passes `now`. Only code
// that waits uses Deadline.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace pc {

class Deadline {
 public:
  // Returns the deadline `seconds` after `from`. The duration is clamped to 30 years, so that 1e300
  // does not overflow; NaN counts as 0. A caller that has just read the clock passes that time as
  // `from`.
  static Deadline after(double seconds, TimePoint from = now()) {
    const double s = seconds > 0 ? std::min(seconds, 1e9) : 0.0;
    return Deadline(from + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                               std::chrono::duration<double>(s)));
  }
  explicit Deadline(TimePoint when) : when_(when) {}
  TimePoint when() const { return when_; }
  bool expired() const { return now() >= when_; }
  double remaining_s() const { return std::chrono::duration<double>(when_ - now()).count(); }
  static constexpr int kSliceMs = 50;  // the longest time between two checks for an abort or Ctrl-C
  // Returns the milliseconds to sleep next: at most `most`, at least 0. The result is rounded up,
  // so that the sleep does not end just before the deadline, after which the caller would spin.
  int slice_ms(int most = kSliceMs) const {
    const double ms = remaining_s() * 1e3;
    return ms <= 0 ? 0 : ms >= most ? most : static_cast<int>(ms) + 1;
  }

 private:
  TimePoint when_;
};

}  // namespace pc
