//   Idea     In round k every rank notifies the rank 2^k after it. The message implies that the
//            sender, and every rank that notified the sender before, has arrived. After ceil(log2
//            n) rounds every rank knows that all ranks have arrived.
//   Cost     ceil(log2 n) rounds, one empty message per rank and round. Any n. No memory at all.
//   n = 4    round 0   0 -> 1 -> 2 -> 3 -> 0
//            round 1   0 <-> 2   1 <-> 3
//   Source   D. Hensgen, R. Finkel and U. Manber, Two algorithms for barrier synchronization, 1988.
//   Limits   Moves no data.
#include "plan/builder.h"

namespace pc {

Plan dissemination_barrier(const Shape& shape) {
  PlanBuilder plan("dissemination", shape, 0);
  for (Rank distance = 1; distance < shape.size; distance *= 2) {
    plan.send((shape.rank + distance) % shape.size, nothing());
    plan.recv((shape.rank - distance + shape.size) % shape.size, nothing());
  }
  return plan.take();
}

}  // namespace pc
