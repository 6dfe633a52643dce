//   Idea     Every rank sends its part to the root, which receives each part at its final place.
//   Cost     One message per rank but the root, eight in flight at once; nothing is sent twice. No
//            scratch.
//   n = 4    root 0:   1 -> 0, 2 -> 0, 3 -> 0
//   Source   The definition (MPI: A Message-Passing Interface Standard 4.1, section 6.5).
//   Limits   The root handles n-1 messages: for few ranks or large parts.
#include "plan/builder.h"

namespace pc {

Plan linear_gather(const Shape& shape) {
  constexpr Rank kLanes = 8;
  PlanBuilder plan("linear", shape, static_cast<uint32_t>(shape.size));
  for (Rank distance = 1; distance < shape.size; ++distance) {
    const Rank from = (shape.root + distance) % shape.size;
    plan.lane(static_cast<uint8_t>((distance - 1) % kLanes));
    if (shape.rank == shape.root) plan.recv(from, output(static_cast<uint32_t>(from)));
    if (shape.rank == from) plan.send(shape.root, input(static_cast<uint32_t>(from)));
  }
  return plan.take();
}

}  // namespace pc
