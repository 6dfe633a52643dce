//   Idea     The sum for rank r starts at rank r+1 and travels around the ring to r; every rank on
//            the path adds its contribution. With `split` > 1 each part is cut into `split` pieces,
//            distributed round-robin over four lanes.
//   Cost     n-1 rounds; each rank sends n-1 parts. The input is not written, so partial sums are
//            kept in scratch: two chunks per lane, one of which is sent while the other is filled.
//   n = 4    0 -> 1 -> 2 -> 3 -> 0          what each rank sends to its right in each round
//              round    0       1       2   (in parentheses: the number of ranks summed)
//              rank 0   p3 (1)  p2 (2)  p1 (3)
//              rank 1   p0 (1)  p3 (2)  p2 (3)
//   Source   The first half of P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms
//            for clusters of workstations, 2009.
//   Limits   n-1 latencies. Sends to adjacent ranks only: for many hosts and large parts.
#include <algorithm>
#include <array>

#include "plan/builder.h"

namespace pc {

Plan ring_reduce_scatter(const Shape& shape) {
  constexpr uint32_t kLanes = 4, kSlots = 2;
  const Rank n = shape.size;
  const Rank right = (shape.rank + 1) % n;
  const Rank left = (shape.rank + n - 1) % n;
  const bool passes_on = n > 2;

  PlanBuilder plan("ring", shape, static_cast<uint32_t>(n) * shape.split,
                   passes_on ? kSlots * std::min(kLanes, shape.split) : 0);
  std::array<uint32_t, kSlots * kLanes> sent{};  // the send that last read each slot
  for (uint32_t piece = 0; piece < shape.split; ++piece) {
    const uint32_t lane = piece % kLanes;
    const auto chunk = [&](Rank back) {
      return static_cast<uint32_t>((shape.rank - back + n) % n) * shape.split + piece;
    };
    plan.lane(static_cast<uint8_t>(lane));
    if (n > 1) plan.send(right, input(chunk(1)));
    for (Rank round = 1; round < n - 1; ++round) {
      const uint32_t slot = lane * kSlots + static_cast<uint32_t>(round) % kSlots;
      const Place sum = scratch(slot, chunk(round + 1));
      plan.after(sent[slot]).copy(input(chunk(round + 1)), sum);
      plan.recv_reduce(left, sum, {.dst = 1, .src = round});
      sent[slot] = plan.send(right, sum);
    }
    if (n > 1) plan.recv_reduce(left, output(chunk(0)), {.dst = 1, .src = n - 1});
  }
  return plan.take();
}

}  // namespace pc
