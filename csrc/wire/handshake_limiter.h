// Who may wait at a listener without having proved anything: so many, so long, and no source at the others' expense. When
// there are too many, the oldest of the source that has the most must go: honest ranks speak at once and are soon gone.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/deadline.h"

namespace pc {

// No sockets, no clock. Thread-safety: none.
class HandshakeLimiter {
 public:
  static constexpr double kWaitLimitS = 3;       // a member of the job says at once who it is
  using Source = std::array<unsigned char, 16>;  // where it comes from: host_bytes() of net/socket.h
  explicit HandshakeLimiter(std::size_t most, double wait_limit_s = kWaitLimitS)
      : most_(most),
        wait_limit_s_(wait_limit_s) {}

  // `pending`, a descriptor, has come. Returns who must go for it, or -1; that one has left already.
  int enter(int pending, const Source& source, TimePoint now);
  int evict();              // makes room, for whatever reason: who must go, or -1 if nobody is here
  void leave(int pending);  // known by now, or gone; one who is not here is no matter
  bool has(int pending) const { return by_number_.contains(pending); }
  std::vector<int> expired(TimePoint now) const;  // whose time is over; they are still here
  TimePoint next() const;                         // when the next one's time is over; max(): nobody's
  std::size_t count() const { return by_number_.size(); }

 private:
  struct Pending {
    Source source;
    TimePoint until;
  };
  const std::size_t most_;
  const double wait_limit_s_;
  std::map<int, Pending> by_number_;
  std::map<Source, std::set<std::pair<TimePoint, int>>> by_source_;  // the oldest first
};

}  // namespace pc
