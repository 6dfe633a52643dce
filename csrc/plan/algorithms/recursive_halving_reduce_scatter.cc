//   Idea     Ranks that are n/2 apart swap: each sends the parts that the other rank's half of the
//            ranks needs, and adds what it receives to the parts of its own half. The same repeats
//            within each half, until every rank has its own part.
//   Cost     log2(n) rounds; each rank sends n-1 parts in all. Sums are kept in n/2 chunks of
//            scratch; the first round sends straight from the input.
//   n = 4    round 0   0 <-> 2   1 <-> 3     two parts each way: p2 p3 there, p0 p1 back
//            round 1   0 <-> 1   2 <-> 3     one part each way
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   Powers of two and equal parts only, because parts in one message must be contiguous.
#include "plan/builder.h"

namespace pc {

Plan recursive_halving_reduce_scatter(const Shape& shape) {
  const uint32_t n = static_cast<uint32_t>(shape.size), self = static_cast<uint32_t>(shape.rank);
  PlanBuilder plan("recursive_halving", shape, n, n / 2);
  const uint32_t first = self & ~(n / 2 - 1);  // if n > 1, scratch holds the parts from here on
  const auto sums = [&](Chunks parts) {
    return Place{Area::kScratch, {parts.first - first, parts.count}, parts};
  };
  for (uint32_t half = n / 2; half > 0; half /= 2) {
    const Rank peer = static_cast<Rank>(self ^ half);
    const Chunks mine = {self & ~(half - 1), half}, theirs = {mine.first ^ half, half};
    const bool is_first = half == n / 2;
    if (is_first) {
      for (uint32_t i = 0; i < half; ++i) plan.copy(input(mine.first + i), sums({mine.first + i, 1}));
    }
    plan.send(peer, is_first ? Place{Area::kInput, theirs, theirs} : sums(theirs));
    const Rank held = static_cast<Rank>(n / 2 / half);
    plan.recv_reduce(peer, sums(mine), {.dst = held, .src = held});
  }
  if (n > 1) plan.copy(sums({self, 1}), output(self));
  return plan.take();
}

}  // namespace pc
