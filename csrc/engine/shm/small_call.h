// Calls that are done in one exchange of slots (small_call.cc), among several hosts in two (leader_call.cc).
#pragma once

#include <optional>

#include "engine/shm/exchange.h"

namespace pc::shm {

// Each says whether it is done.
bool announce_small(Exchange& exchange);
bool finish_small(Exchange& exchange);

// What a leader keeps of it. Those that follow announce a small call, and then follow().
class LeaderCall {
 public:
  explicit LeaderCall(Exchange& exchange) : exchange_(exchange) {}
  void prepare() { position_.reset(); }
  bool lead();  // and announces the call

 private:
  bool begin();
  bool is_inline() const { return exchange_.traffic.nbytes() <= kInlineNbytes; }

  Exchange& exchange_;
  std::optional<uint64_t> position_;  // in the ring, of what is exchanged with other hosts; nothing yet
  alignas(8) std::byte inline_[kInlineNbytes];  // instead, if it is short
};
bool follow(Exchange& exchange);

}  // namespace pc::shm
