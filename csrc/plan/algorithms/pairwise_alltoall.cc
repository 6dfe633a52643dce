//   Idea     Every rank sends each other rank's data directly to that rank, straight from input to
//            output.
//   Cost     n-1 messages of one part each way, eight in flight at once. No scratch. Parts may
//            differ in size.
//   n = 4    what rank 0 does:   -> 1, <- 3;   -> 2, <- 2;   -> 3, <- 1
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   n-1 messages per rank: for many ranks and small parts Bruck's algorithm has fewer.
#include "plan/builder.h"

namespace pc {

Plan pairwise_alltoall(const Shape& shape) {
  constexpr Rank kLanes = 8;
  const Rank n = shape.size, self = shape.rank;
  const auto chunk = [n](Rank from, Rank to) { return static_cast<uint32_t>(from * n + to); };
  PlanBuilder plan("pairwise", shape, static_cast<uint32_t>(n) * static_cast<uint32_t>(n));
  for (Rank distance = 1; distance < n; ++distance) {
    const Rank to = (self + distance) % n, from = (self + n - distance) % n;
    plan.lane(static_cast<uint8_t>((distance - 1) % kLanes));
    plan.send(to, input(chunk(self, to)));
    plan.recv(from, output(chunk(from, self)));
  }
  return plan.take();
}

}  // namespace pc
