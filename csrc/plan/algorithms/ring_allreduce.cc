//   Idea     The array is cut into n chunks. Each chunk travels once around the ring and collects
//            every rank's contribution (reduce-scatter), then its sum travels around once more
//            (all-gather). A rank sends one chunk while it receives another, so both directions of
//            every link are busy all the time. With `split` > 1 the array is cut into `split`
//            slices, each a ring of its own, distributed round-robin over four lanes. While one
//            slice waits for its next chunk, the wire carries a chunk of another.
//   Cost     2(n-1) rounds; each rank sends 2(n-1)/n of the array, the minimum for an allreduce. No
//            scratch.
//   n = 4    0 -> 1 -> 2 -> 3 -> 0          what each rank sends to its right in each round
//              round       0    1    2  |  3    4    5
//              rank 0      c0   c3   c2 |  C1   C0   C3       small: part of the sum
//              rank 1      c1   c0   c3 |  C2   C1   C0       CAPITAL: the whole sum
//              rank 2      c2   c1   c0 |  C3   C2   C1
//              rank 3      c3   c2   c1 |  C0   C3   C2
//   Source   P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
//            workstations, 2009. Pipelining in slices as in NCCL's ring.
//   Limits   2(n-1) latencies: slow for small arrays. A plan has 4(n-1) steps per slice and rank.
//            Every sum is formed on one rank and then copied, so all ranks get the same bits with
//            every kernel.
#include "plan/builder.h"

namespace pc {

Plan ring_allreduce(const Shape& shape) {
  const Rank n = shape.size;
  const Rank right = (shape.rank + 1) % n;
  const Rank left = (shape.rank + n - 1) % n;
  constexpr uint32_t kLanes = 4;

  PlanBuilder plan("ring", shape, static_cast<uint32_t>(n) * shape.split);
  plan.expect(static_cast<std::size_t>(4 * (n - 1)) * shape.split);
  for (uint32_t slice = 0; slice < shape.split; ++slice) {
    // The slice's chunk that is `back` places before this rank.
    const auto chunk = [&](Rank back) {
      Rank at = shape.rank - back;
      if (at < 0) at += n;
      if (at == n) at = 0;
      return output(slice * static_cast<uint32_t>(n) + static_cast<uint32_t>(at));
    };
    plan.lane(static_cast<uint8_t>(slice % kLanes));
    for (Rank round = 0; round < n - 1; ++round) {
      plan.send(right, chunk(round));
      plan.recv_reduce(left, chunk(round + 1), {.dst = 1, .src = round + 1});
    }
    for (Rank round = 0; round < n - 1; ++round) {
      plan.send(right, chunk(round - 1));
      plan.recv(left, chunk(round));
    }
  }
  return plan.take();
}

}  // namespace pc
