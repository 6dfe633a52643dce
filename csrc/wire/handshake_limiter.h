// Limits the unauthenticated connections of a listener: their number, their time, and the share of
// each source address. If there are too many, the oldest connection of the source with the most
// connections is evicted. This rarely affects ranks of the job, because they send at once and are
// soon authenticated.
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
  static constexpr double kWaitLimitS = 3;       // a member of the job sends its hello at once
  using Source = std::array<unsigned char, 16>;  // the remote address: host_bytes() of net/socket.h
  explicit HandshakeLimiter(std::size_t most, double wait_limit_s = kWaitLimitS)
      : most_(most),
        wait_limit_s_(wait_limit_s) {}

  // Adds the descriptor `pending`. If another one must be evicted for it, removes and returns that
  // descriptor; otherwise returns -1.
  int enter(int pending, const Source& source, TimePoint now);
  // Evicts a connection. Returns its descriptor, which the caller closes, or -1 if there is none.
  int evict();
  void leave(int pending);  // `pending` was authenticated or closed; an unknown descriptor is ignored
  bool has(int pending) const { return by_number_.contains(pending); }
  // returns the descriptors past their time limit, without removing them
  std::vector<int> expired(TimePoint now) const;
  TimePoint next() const;  // when the next time limit expires; max() if there is none
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
