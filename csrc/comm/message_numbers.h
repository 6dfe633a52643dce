// The numbers of the messages of one group: each (peer, tag) and direction counts its own.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace pc {

// A number whose peer has not heard of it is used again. Thread-safety: what says so needs turn() held.
class MessageNumbers {
 public:
  // Held from numbering a message until it is posted, so that they are posted in order.
  std::unique_lock<std::mutex> turn() { return std::unique_lock(mutex_); }
  uint64_t take(Rank peer, uint32_t tag, bool sends);  // turn() held
  void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number);

 private:
  struct Numbers {
    uint64_t count = 0;
    std::vector<uint64_t> free;
  };
  Numbers& of(Rank peer, uint32_t tag, bool sends);  // mutex_ held

  std::mutex mutex_;
  std::unordered_map<uint64_t, Numbers> all_;
};

}  // namespace pc
