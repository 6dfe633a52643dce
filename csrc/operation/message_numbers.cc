#include "operation/message_numbers.h"

#include <algorithm>

namespace pc {

uint64_t MessageNumbers::take(Rank peer, uint32_t tag, bool sends) {
  Numbers& numbers = of(peer, tag, sends);
  notify_watchers(sends);
  if (numbers.free.empty()) return ++numbers.count;
  const auto lowest = std::min_element(numbers.free.begin(), numbers.free.end());
  const uint64_t number = *lowest;
  numbers.free.erase(lowest);
  return number;
}

uint64_t MessageNumbers::next(Rank peer, uint32_t tag, bool sends) {
  const Numbers& numbers = of(peer, tag, sends);
  return numbers.free.empty() ? numbers.count + 1
                              : *std::min_element(numbers.free.begin(), numbers.free.end());
}

Rank MessageNumbers::last_source(uint32_t tag) const {
  const auto found = last_sources_.find(tag);
  return found == last_sources_.end() ? -1 : found->second;
}

void MessageNumbers::give_back(Rank peer, uint32_t tag, bool sends, uint64_t number) {
  const std::lock_guard lock(mutex_);
  of(peer, tag, sends).free.push_back(number);
  notify_watchers(sends);
}

void MessageNumbers::unwatch(const CompletionSink* sink) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watchers_, [sink](const Watcher& watcher) { return watcher.sink == sink; });
}

void MessageNumbers::notify_watchers(bool sends) {
  if (sends) return;
  for (const Watcher& watcher : watchers_)
    watcher.sink->complete({.token = watcher.token, .status = {}, .found = {}, .nbytes = 0});
}

MessageNumbers::Numbers& MessageNumbers::of(Rank peer, uint32_t tag, bool sends) {
  return all_[uint64_t{static_cast<uint32_t>(peer)} << 33 | uint64_t{tag} << 1 | (sends ? 1 : 0)];
}

}  // namespace pc
