//   Idea     The root sends every rank its part.
//   Cost     One message per rank but the root, all in flight at once; nothing is sent twice. No
//            scratch.
//   n = 4    root 0:   0 -> 1, 0 -> 2, 0 -> 3
//   Source   The definition (MPI: A Message-Passing Interface Standard 4.1, section 6.6).
//   Limits   The root handles n-1 messages: for few ranks or large parts.
#include "plan/builder.h"

namespace pc {

Plan linear_scatter(const Shape& shape) {
  PlanBuilder plan("linear", shape, static_cast<uint32_t>(shape.size));
  for (Rank distance = 1; distance < shape.size; ++distance) {
    const Rank to = (shape.root + distance) % shape.size;
    if (shape.rank == shape.root) plan.send(to, input(static_cast<uint32_t>(to)));
    if (shape.rank == to) plan.recv(shape.root, output(static_cast<uint32_t>(to)));
  }
  return plan.take();
}

}  // namespace pc
