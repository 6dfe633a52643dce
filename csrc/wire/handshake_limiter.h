// Limits the connections that wait at a listener without having proved anything: their number,
// their time, and the share of each source. When there are too many, the oldest connection of the
// source with the most is evicted: honest ranks send at once and are soon done.
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
  static constexpr double kWaitLimitS = 3;       // a member of the job identifies itself at once
  using Source = std::array<unsigned char, 16>;  // the remote address: host_bytes() of net/socket.h
  explicit HandshakeLimiter(std::size_t most, double wait_limit_s = kWaitLimitS)
      : most_(most),
        wait_limit_s_(wait_limit_s) {}

  // Adds `pending`, a descriptor. Returns the descriptor that is evicted for it, which is already
  // removed, or -1.
  int enter(int pending, const Source& source, TimePoint now);
  int evict();  // makes room for any reason: returns the descriptor to close, or -1 if there is none
  void leave(int pending);  // authenticated, or closed; an unknown descriptor is ignored
  bool has(int pending) const { return by_number_.contains(pending); }
  std::vector<int> expired(TimePoint now) const;  // those past their time limit; they are not removed
  TimePoint next() const;                         // when the next time limit expires; max() if there is none
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
