// One call of a user, as the core represents it. Collectives and point-to-point calls share this
// one type.
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
  // May be the memory of `out` (in place); otherwise it must not overlap `out`. If one array
  // corresponds to a part of the other, in place means that part. Empty if a rank has no such array
  // (contracts.h).
  ConstBuffer in;
  Buffer out;
  Reduction op;
  Rank root = 0;
  bool fixed_order = false;  // allow only algorithms that sum every element in one fixed order
  // For a collective with an array of parts: the number of elements in each rank's part. Empty: all
  // parts are equally large. For alltoall: what this rank sends to each rank, and what it receives
  // from each. The memory lives as long as the operation.
  std::span<const uint64_t> counts = {}, recv_counts = {};
  // For several arrays that are sent as one: how many (upper half), and a value that distinguishes
  // their shapes.
  uint64_t bundle = 0;
  // For arrays on a GPU: the CUDA stream on which they are produced and used afterwards. A blocking
  // call returns when it is queued there, if its backend works in stream order, or else when it has
  // ended. The arrays and the list that holds them must live until the call has ended. None: the
  // legacy default stream, and a blocking call returns when it has ended.
  std::optional<void*> stream = {};
  std::string_view label;  // the user's name for this call, shown in errors and traces
  // where the user makes the call, "train.py:42 in step"; lives as long as the process
  const char* site = nullptr;
  const char* shape =
      nullptr;  // shape of the array, "(17, 1311)", where ranks compare it; lives as long as the process
};

// What a checked call operates on: the whole array, of which some ranks may have only a part. For
// alltoall: what this rank sends.
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
// Returns whether all ranks know the size. The uneven parts of an alltoall are known only to their
// sender and receiver.
inline bool knows_size(const Request& request) {
  return request.collective != Collective::kAlltoall || request.counts.empty();
}
// Buffer::layout of the array that elements_of() describes.
inline const Layout* layout_of(const Request& request) {
  return request.collective == Collective::kBroadcast || request.collective == Collective::kScatter
             ? request.out.layout
             : request.in.layout;
}

// Is notified of what a call finds out about earlier calls.
class CallListener {
 public:
  // `peer`, a rank of the world, sent a message of collective `sequence` that this rank's call did
  // not receive.
  virtual void late_mismatch(uint64_t sequence, Rank peer, const Status& why) = 0;
  // The digest that a rank sends instead of a call's when it leaves the group.
  virtual uint64_t digest_of_leaving(uint64_t sequence) const = 0;

 protected:
  ~CallListener() = default;
};

// What an executor needs besides the request. The communicator fills it in.
struct Launch {
  uint32_t group = 0;
  uint64_t sequence = 0;
  uint64_t digest = 0;                // of the full descriptor; every frame carries it
  Rank rank = 0, size = 1;            // in the group
  const Rank* world_ranks = nullptr;  // group rank -> world rank, `size` entries; outlives the operation
  const Algorithm* algorithm = nullptr;
  uint32_t split = 1;
  CallListener* listener = nullptr;  // may be null; outlives the operation
  bool waits = false;                // the caller is going to wait for it at once
  // For a part of a collective that only some of the group's ranks execute. `rank` and `size` then
  // count these ranks.
  const Rank* names = nullptr;  // how errors name them: ranks of the group; null: `rank` already is one
  uint32_t contributions = 1;   // how many ranks' contributions each of them has already combined
  // index of this part's first message; other parts have the indices before it
  uint32_t first_message = 0;
  Rank named(Rank member) const { return names == nullptr || member < 0 ? member : names[member]; }
};

}  // namespace pc
