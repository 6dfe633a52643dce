// One call of a user, in the words of the core. There is one Request for all collectives and point-to-point calls.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/deadline.h"
#include "base/types.h"
#include "base/waiter.h"
#include "plan/contracts.h"

namespace pc {

struct Request {
  Collective collective = Collective::kBarrier;
  // May be `out`'s memory (in place), else must not overlap it. Where one is a part of the other's array: in place means
  // that part. Empty where a rank has none (contracts.h).
  ConstBuffer in;
  Buffer out;
  Reduction op;
  Rank root = 0;
  bool fixed_order = false;  // only algorithms that sum every element in one order
  // Of a collective whose array has parts: the elements in each rank's part. Empty: all are equally large. They live as
  // long as the operation. Alltoall: what goes to each rank, and what comes from each.
  std::span<const uint64_t> counts = {}, recv_counts = {};
  // Of several arrays that travel as one: how many (upper half), and what tells their shapes from others.
  uint64_t bundle = 0;
  // Of arrays on a GPU: the CUDA stream on which they are made, and used afterwards. A blocking call returns when it is
  // queued there, if its backend works in the order of the stream, else when it has ended. Until it has ended the arrays
  // must live, with what they are listed in. None: the legacy default stream, and a blocking call returns when it has ended.
  std::optional<void*> stream = {};
  std::string_view label;      // the user's name for this call, shown in errors and traces
  const char* site = nullptr;  // where the user makes it: "train.py:42 in step". Lives as long as the process
  const char* shape =
      nullptr;  // of the array, "(17, 1311)", where ranks compare it; lives as long as the process
};

// What a checked call is about: the whole array, of which some ranks may have a part. Of an alltoall, what this rank sends.
struct Elements {
  std::size_t count = 0;
  DType dtype = DType::kU8;
  std::size_t nbytes() const { return count * size_of(dtype); }
};
inline Elements elements_of(const Request& request, Rank size) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kAllgather: return {request.out.count, request.out.dtype};
    case Collective::kGather:
    case Collective::kScatter: break;
    default: return {request.in.count, request.in.dtype};
  }
  const bool gathers = request.collective == Collective::kGather;
  Elements all{gathers ? request.in.count : request.out.count,
               gathers ? request.in.dtype : request.out.dtype};
  if (request.counts.empty()) return {all.count * ranks, all.dtype};
  all.count = 0;
  for (const uint64_t count : request.counts) all.count += count;
  return all;
}
inline std::size_t arrays_of(uint64_t bundle) { return bundle >> 32; }  // 0: it is no list
// Whether all ranks know that size. Uneven parts of an alltoall are nobody's business but sender's and receiver's.
inline bool knows_size(const Request& request) {
  return request.collective != Collective::kAlltoall || request.counts.empty();
}
// Of the same elements: Buffer::layout.
inline const Layout* layout_of(const Request& request) {
  return request.collective == Collective::kBroadcast || request.collective == Collective::kScatter
             ? request.out.layout
             : request.in.layout;
}

// Hears of what a call finds out about earlier ones.
class CallListener {
 public:
  // `peer`, in ranks of the world, sent a message of collective `sequence` that this rank's call did not receive.
  virtual void late_mismatch(uint64_t sequence, Rank peer, const Status& why) = 0;
  // What a rank that leaves the group says instead of a call's digest.
  virtual uint64_t digest_of_leaving(uint64_t sequence) const = 0;

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
  bool waits = false;                // the caller is going to wait for it at once
  // Of a part of a collective, which some of the group's ranks make among themselves. `rank` and `size` are theirs then.
  const Rank* names = nullptr;  // what errors call them: ranks of the group; null: they are
  uint32_t contributions = 1;   // of the group's ranks, that each of them has combined already
  uint32_t first_message = 0;   // the index of this part's first message: others have those before it
  Rank named(Rank member) const { return names == nullptr || member < 0 ? member : names[member]; }
};

}  // namespace pc
