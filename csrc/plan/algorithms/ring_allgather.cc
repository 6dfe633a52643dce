//   Idea     Every rank's part travels once around the ring: a rank passes on what has just
//            arrived. With `split` > 1 each part is cut into `split` pieces, distributed
//            round-robin over four lanes, so that one piece is sent on while another arrives.
//   Cost     n-1 rounds; each rank sends n-1 parts, the minimum for an all-gather. No scratch.
//   n = 4    0 -> 1 -> 2 -> 3 -> 0          what each rank sends to its right in each round
//              round    0    1    2
//              rank 0   p0   p3   p2
//              rank 1   p1   p0   p3
//   Source   The second half of P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms
//            for clusters of workstations, 2009.
//   Limits   n-1 latencies: slow for small parts. With uneven parts every link carries the largest
//            one in some round.
#include "plan/builder.h"

namespace pc {

Plan ring_allgather(const Shape& shape) {
  const Rank n = shape.size;
  const Rank right = (shape.rank + 1) % n;
  const Rank left = (shape.rank + n - 1) % n;
  constexpr uint32_t kLanes = 4;

  PlanBuilder plan("ring", shape, static_cast<uint32_t>(n) * shape.split);
  for (uint32_t piece = 0; piece < shape.split; ++piece) {
    // The piece of the rank that is `back` places before this rank.
    const auto chunk = [&](Rank back) {
      return output(static_cast<uint32_t>((shape.rank - back + n) % n) * shape.split + piece);
    };
    plan.lane(static_cast<uint8_t>(piece % kLanes));
    for (Rank round = 0; round < n - 1; ++round) {
      plan.send(right, chunk(round));
      plan.recv(left, chunk(round + 1));
    }
  }
  return plan.take();
}

}  // namespace pc
