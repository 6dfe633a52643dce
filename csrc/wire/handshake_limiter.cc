#include "wire/handshake_limiter.h"

#include <algorithm>
#include <chrono>

namespace pc {

int HandshakeLimiter::enter(int pending, const Source& source, TimePoint now) {
  const int evicted = count() < most_ ? -1 : evict();
  const TimePoint until =
      now + std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(wait_limit_s_));
  by_number_.insert_or_assign(pending, Pending{source, until});
  by_source_[source].emplace(until, pending);
  return evicted;
}

int HandshakeLimiter::evict() {
  const auto greediest =
      std::max_element(by_source_.begin(), by_source_.end(), [](const auto& a, const auto& b) {
        if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
        // if the numbers are equal, the source with the oldest connection is chosen
        return a.second.begin()->first > b.second.begin()->first;
      });
  if (greediest == by_source_.end()) return -1;
  const int oldest = greediest->second.begin()->second;
  leave(oldest);
  return oldest;
}

void HandshakeLimiter::leave(int pending) {
  const auto at = by_number_.find(pending);
  if (at == by_number_.end()) return;
  const auto group = by_source_.find(at->second.source);
  group->second.erase({at->second.until, pending});
  if (group->second.empty()) by_source_.erase(group);
  by_number_.erase(at);
}

std::vector<int> HandshakeLimiter::expired(TimePoint now) const {
  std::vector<int> over;
  for (const auto& [number, pending] : by_number_) {
    if (pending.until <= now) over.push_back(number);
  }
  return over;
}

TimePoint HandshakeLimiter::next() const {
  TimePoint first = TimePoint::max();
  for (const auto& [source, group] : by_source_) first = std::min(first, group.begin()->first);
  return first;
}

}  // namespace pc
