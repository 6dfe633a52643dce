// The message numbers of one group. Each (peer, tag, direction) has its own counter.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "wire/message.h"

namespace pc {

// A number is reused if the peer was never informed of its message. Thread-safety: only the holder
// of issue_order() may call the methods that require it; any thread may call the other methods.
class MessageNumbers {
 public:
  // Lock it from numbering a message until posting it, so that messages are posted in order of
  // their numbers.
  std::unique_lock<std::mutex> issue_order() { return std::unique_lock(mutex_); }
  uint64_t take(Rank peer, uint32_t tag, bool sends);  // requires issue_order()
  uint64_t next(Rank peer, uint32_t tag, bool sends);  // what take() would return; requires issue_order()
  // last_source() and set_last_source() require issue_order(). last_source() returns the rank that
  // sent the last message with that tag to a receive from any rank, or -1 if there is none.
  Rank last_source(uint32_t tag) const;
  void set_last_source(uint32_t tag, Rank peer) { last_sources_[tag] = peer; }
  void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number);
  // Completes `sink` with `token` whenever the result of next() for a receive may have changed,
  // until unwatch(). Requires issue_order().
  void watch(CompletionSink* sink, uint64_t token) { watchers_.push_back({sink, token}); }
  void unwatch(const CompletionSink* sink);

 private:
  struct Numbers {
    uint64_t count = 0;
    std::vector<uint64_t> free;
  };
  void notify_watchers(bool sends);                  // mutex_ is held
  Numbers& of(Rank peer, uint32_t tag, bool sends);  // mutex_ is held

  std::mutex mutex_;
  std::unordered_map<uint64_t, Numbers> all_;
  std::unordered_map<uint32_t, Rank> last_sources_;  // by tag
  struct Watcher {
    CompletionSink* sink;
    uint64_t token;
  };
  std::vector<Watcher> watchers_;  // the waiting receives from any rank, which are few
};

}  // namespace pc
