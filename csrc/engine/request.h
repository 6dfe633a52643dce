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
  // `in` may be the memory of `out` (in place); otherwise the two must not overlap. If one array
  // corresponds to a part of the other, as in allgather, an in-place call passes that part of the
  // larger array. An array is empty on a rank that has none (contracts.h).
  ConstBuffer in;
  Buffer out;
  Reduction op;
  Rank root = 0;
  bool fixed_order = false;  // allow only algorithms that sum every element in one fixed order
  // For a collective with an array of parts: the number of elements in each rank's part. Empty if
  // all parts have the same size. For alltoall, `counts` is what this rank sends to each rank, and
  // `recv_counts` what it receives from each. The memory must outlive the operation.
  std::span<const uint64_t> counts = {}, recv_counts = {};
  // For several arrays that are sent as one: their number (upper 32 bits), and a value that
  // distinguishes their shapes (lower 32 bits).
  uint64_t bundle = 0;
  // For arrays on a GPU: the CUDA stream on which they are produced and used afterwards. If the
  // backend works in stream order, a blocking call returns when it is queued on that stream;
  // otherwise it returns when it has ended. The arrays and the list that holds them must live until
  // the call has ended. nullopt stands for the legacy default stream, and a blocking call then
  // returns when it has ended.
  std::optional<void*> stream = {};
  std::string_view label;  // the user's name for this call, shown in errors and traces
  // the line of the user's program that makes the call, "train.py:42 in step"; lives as long as the
  // process
  const char* site = nullptr;
  // shape of the array, "(17, 1311)", if the ranks compare it; lives as long as the process
  const char* shape = nullptr;
};

// The array that a checked call operates on: the whole array, even if a rank has only a part of it.
// For alltoall, the array that this rank sends.
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
// returns 0 if the call has no list of arrays
inline std::size_t arrays_of(uint64_t bundle) { return bundle >> 32; }
// Returns whether all ranks know the size of the call. If an alltoall has uneven parts, only the
// sender and the receiver of a part know the size of the part.
inline bool knows_size(const Request& request) {
  return request.collective != Collective::kAlltoall || request.counts.empty();
}
// Buffer::layout of the array that elements_of() describes.
inline const Layout* layout_of(const Request& request) {
  return request.collective == Collective::kBroadcast || request.collective == Collective::kScatter
             ? request.out.layout
             : request.in.layout;
}

// The interface through which an executor reports mismatches of earlier calls and recognizes peers
// that leave the group.
class CallListener {
 public:
  // World rank `peer` made a different call than this rank under number `sequence`. The executor
  // detected this only during a later call.
  virtual void late_mismatch(uint64_t sequence, Rank peer, const Status& why) = 0;
  // Returns the digest that a rank sends in collective `sequence` if it leaves the group instead of
  // making the call.
  virtual uint64_t digest_of_leaving(uint64_t sequence) const = 0;

 protected:
  ~CallListener() = default;
};

// The arguments of an executor besides the request. The communicator fills them in.
struct Launch {
  uint32_t group = 0;
  uint64_t sequence = 0;
  uint64_t digest = 0;                // of the full descriptor; every frame carries it
  Rank rank = 0, size = 1;            // in the group
  const Rank* world_ranks = nullptr;  // group rank -> world rank, `size` entries; outlives the operation
  const Algorithm* algorithm = nullptr;
  uint32_t split = 1;
  CallListener* listener = nullptr;  // may be null; outlives the operation
  bool waits = false;                // the caller waits for the operation right after launch()
  // The members below are set for a part of a collective that only some ranks of the group execute.
  // `rank` and `size` then number these ranks.
  // names[r]: the rank of the group by which errors name rank r; null: errors use r
  const Rank* names = nullptr;
  uint32_t contributions = 1;  // number of ranks' contributions that each of these ranks has already combined
  // index of this part's first message; earlier parts have the indices before it
  uint32_t first_message = 0;
  Rank named(Rank member) const { return names == nullptr || member < 0 ? member : names[member]; }
};

}  // namespace pc
