//   Idea     First every rank sends its array to the next rank, which stores it in place of its
//            own. Then the ranks from 1 on scan as in recursive_doubling_scan.cc, so a rank gets
//            the sum of the ranks before it. Rank 0 gets nothing.
//   Cost     1 + ceil(log2(n-1)) rounds, the whole array per round. One chunk of scratch.
//   n = 4    round 0   0 -> 1 -> 2 -> 3        rank 3 holds 2
//            round 1   1 -> 2 -> 3             rank 3 holds 1..2
//            round 2   1 -> 3                  rank 3 holds 0..2
//   Source   W. D. Hillis and G. L. Steele, Data parallel algorithms, 1986.
//   Limits   Those of recursive_doubling_scan.cc.
#include <algorithm>

#include "plan/builder.h"

namespace pc {

Plan recursive_doubling_exscan(const Shape& shape) {
  const Rank self = shape.rank, n = shape.size;
  PlanBuilder plan("recursive_doubling", shape, 1, self > 0 ? 1 : 0);
  uint32_t sent = 0;
  if (self + 1 < n) sent = plan.send(self + 1, input(0));
  if (self == 0) return plan.take();
  plan.recv(self - 1, scratch(0, 0));
  plan.after(sent).copy(scratch(0, 0), output(0));
  for (Rank distance = 1; distance < n - 1; distance *= 2) {
    const Rank to = self + distance, from = self - distance;
    const auto held = [&](Rank rank) { return std::min(distance, rank); };
    sent = to < n ? plan.send(to, output(0)) : 0;
    if (from < 1) continue;
    plan.recv(from, scratch(0, 0));
    plan.after(sent).reduce(scratch(0, 0), output(0), {.dst = held(self), .src = held(from)});
  }
  return plan.take();
}

}  // namespace pc
