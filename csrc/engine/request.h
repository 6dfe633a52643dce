// One call of a user, in the words of the core. There is one Request for all collectives and point-to-point calls.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/deadline.h"
#include "base/types.h"
#include "base/waiter.h"
#include "plan/plan.h"

namespace pc {

struct Request {
  Collective collective = Collective::kBarrier;
  ConstBuffer in;  // may be `out`'s memory (in place), else must not overlap it
  Buffer out;      // off the root of a reduce: empty
  Reduction op;
  Rank root = 0;
  void* stream = nullptr;      // device arrays only
  std::string_view label;      // the user's name for this call, shown in errors and traces
  const char* site = nullptr;  // where the user makes it: "train.py:42 in step". Lives as long as the process
};

// What a checked call is about. Everybody has the output of a broadcast, and everybody has the input of all others.
struct Elements {
  std::size_t count = 0;
  DType dtype = DType::kU8;
  std::size_t nbytes() const { return count * size_of(dtype); }
};
inline Elements elements_of(const Request& request) {
  if (request.collective == Collective::kBroadcast) return {request.out.count, request.out.dtype};
  return {request.in.count, request.in.dtype};
}
// Of the same elements: Buffer::layout.
inline const Layout* layout_of(const Request& request) {
  return request.collective == Collective::kBroadcast ? request.out.layout : request.in.layout;
}

// Hears of what a call finds out about earlier ones.
class CallListener {
 public:
  // `peer`, in ranks of the world, sent a message of collective `sequence` that this rank's call did not receive.
  virtual void stray(uint64_t sequence, Rank peer, const Status& why) = 0;
  // Whether a rank that sends this digest instead leaves the group.
  virtual bool is_leaving(uint64_t sequence, uint64_t digest) const = 0;

 protected:
  ~CallListener() = default;
};

// Set by the communicator: what an executor needs besides the request.
struct Launch {
  uint32_t group = 0;
  uint64_t sequence = 0;
  uint64_t digest = 0;                // of the full descriptor; travels in every frame
  Rank rank = 0, size = 1;            // in the group
  const Rank* world_ranks = nullptr;  // group rank -> world rank, `size` entries; outlives the operation
  const Algorithm* algorithm = nullptr;
  uint32_t split = 1;
  CallListener* listener = nullptr;  // may be null; outlives the operation
};

}  // namespace pc
