// Calls that are done in one exchange of slots (small_call.cc), or in two among several hosts
// (leader_call.cc).
#pragma once

#include <optional>

#include "engine/shm/exchange.h"

namespace pc::shm {

// Each returns whether it is done.
bool announce_small(Exchange& exchange);
bool finish_small(Exchange& exchange);

// The state of a small call on its leader. The other ranks of the host announce the call, and then
// call follow().
class LeaderCall {
 public:
  explicit LeaderCall(Exchange& exchange) : exchange_(exchange) {}
  void prepare() { position_.reset(); }
  bool lead();  // announces the call; returns whether it is done

 private:
  bool begin();
  bool is_inline() const { return exchange_.traffic.nbytes() <= kInlineNbytes; }

  Exchange& exchange_;
  // position in the ring of the data that is exchanged with other hosts; empty: not begun
  std::optional<uint64_t> position_;
  alignas(8) std::byte inline_[kInlineNbytes];  // holds that data instead if it is short
};
bool follow(Exchange& exchange);

}  // namespace pc::shm
