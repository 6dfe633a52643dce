//   Idea     Every rank sends each other rank's part to that rank, straight from the input, and
//            adds what it receives to its own part.
//   Cost     n-1 messages of one part each way, all in flight at once: one latency. No scratch.
//   n = 4    rank 0:   p1 -> 1, + p0 from 3;   p2 -> 2, + p0 from 2;   p3 -> 3, + p0 from 1
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005 ("pairwise exchange").
//   Limits   Every rank exchanges messages with every other rank: on a network with slow links
//            between far hosts a ring is better.
#include "plan/builder.h"

namespace pc {

Plan pairwise_reduce_scatter(const Shape& shape) {
  const Rank n = shape.size;
  PlanBuilder plan("pairwise", shape, static_cast<uint32_t>(n) * shape.split);
  for (uint32_t piece = 0; piece < shape.split; ++piece) {
    const auto chunk = [&](Rank part) { return static_cast<uint32_t>(part) * shape.split + piece; };
    for (Rank distance = 1; distance < n; ++distance) {
      const Rank to = (shape.rank + distance) % n;
      plan.send(to, input(chunk(to)));
    }
    for (Rank distance = 1; distance < n; ++distance) {
      const Rank from = (shape.rank + n - distance) % n;
      plan.recv_reduce(from, output(chunk(shape.rank)), {.dst = distance, .src = 1});
    }
  }
  return plan.take();
}

}  // namespace pc
