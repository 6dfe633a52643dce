//   Idea     Sums run along the chain of ranks: each rank adds its contribution to the sum that it
//            receives and passes the new sum on. The array is cut into `split` chunks that follow
//            each other.
//   Cost     n-1 rounds for the first chunk; each rank sends the array once. No scratch.
//   n = 4    0 -> 1 -> 2 -> 3
//   Source   The definition (MPI: A Message-Passing Interface Standard 4.1, section 6.11),
//            pipelined.
//   Limits   Slow for small arrays: n-1 hops.
#include "plan/builder.h"

namespace pc {

Plan chain_scan(const Shape& shape) {
  PlanBuilder plan("chain", shape, shape.split);
  for (uint32_t c = 0; c < shape.split; ++c) {
    if (shape.rank > 0) plan.recv_reduce(shape.rank - 1, output(c), {.dst = 1, .src = shape.rank});
    if (shape.rank + 1 < shape.size) plan.send(shape.rank + 1, output(c));
  }
  return plan.take();
}

}  // namespace pc
