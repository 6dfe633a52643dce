//   Idea     Before round k rank r holds the sum of the 2^k ranks up to r. It sends this sum to
//            rank r + 2^k and adds the sum that it receives from rank r - 2^k.
//   Cost     ceil(log2 n) rounds, the whole array per round. One chunk of scratch, because the
//            array is being sent while data arrives.
//   n = 4    round 0   0 -> 1 -> 2 -> 3        rank 3 holds 2..3
//            round 1   0 -> 2, 1 -> 3          rank 3 holds 0..3
//   Source   W. D. Hillis and G. L. Steele, Data parallel algorithms, 1986.
//   Limits   Sends the whole array log2(n) times: for small arrays.
#include <algorithm>

#include "plan/builder.h"

namespace pc {

Plan recursive_doubling_scan(const Shape& shape) {
  PlanBuilder plan("recursive_doubling", shape, 1, shape.rank > 0 ? 1 : 0);
  for (Rank distance = 1; distance < shape.size; distance *= 2) {
    const Rank to = shape.rank + distance, from = shape.rank - distance;
    const auto held = [&](Rank rank) { return std::min(distance, rank + 1); };
    uint32_t sent = 0;
    if (to < shape.size) sent = plan.send(to, output(0));
    if (from < 0) continue;
    plan.recv(from, scratch(0, 0));
    plan.after(sent).reduce(scratch(0, 0), output(0), {.dst = held(shape.rank), .src = held(from)});
  }
  return plan.take();
}

}  // namespace pc
