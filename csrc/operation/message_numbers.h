// The numbers of the messages of one group: each (peer, tag) and direction counts its own.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "wire/message.h"

namespace pc {

// A number whose peer has not heard of it is used again. Thread-safety: what says so needs issue_order()
// held.
class MessageNumbers {
 public:
  // Held from numbering a message until it is posted, so that they are posted in order.
  std::unique_lock<std::mutex> issue_order() { return std::unique_lock(mutex_); }
  uint64_t take(Rank peer, uint32_t tag, bool sends);  // issue_order() held
  uint64_t next(Rank peer, uint32_t tag, bool sends);  // what take() would give; issue_order() held
  // Of whom a receive from any rank has got the last message with that tag; -1: of nobody yet. issue_order()
  // held.
  Rank last_source(uint32_t tag) const;
  void set_last_source(uint32_t tag, Rank peer) { last_sources_[tag] = peer; }
  void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number);
  // Completes `sink` with `token` whenever next() of a receive may have changed, until unwatch().
  // issue_order() held.
  void watch(CompletionSink* sink, uint64_t token) { watchers_.push_back({sink, token}); }
  void unwatch(const CompletionSink* sink);

 private:
  struct Numbers {
    uint64_t count = 0;
    std::vector<uint64_t> free;
  };
  void notify_watchers(bool sends);                  // mutex_ held
  Numbers& of(Rank peer, uint32_t tag, bool sends);  // mutex_ held

  std::mutex mutex_;
  std::unordered_map<uint64_t, Numbers> all_;
  std::unordered_map<uint32_t, Rank> last_sources_;  // by tag
  struct Watcher {
    CompletionSink* sink;
    uint64_t token;
  };
  std::vector<Watcher> watchers_;  // receives from anybody that wait: a few at most
};

}  // namespace pc
