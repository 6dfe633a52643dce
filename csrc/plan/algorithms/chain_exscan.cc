//   Idea     As in chain_scan.cc, but the result of a rank is the sum that it receives. The rank
//            adds its own contribution only to the sum that it passes on.
//   Cost     n-1 rounds for the first chunk; each rank sends the array once. Two chunks of scratch,
//            used alternately: the received sum waits there until the new sum has been sent,
//            because both sums need the same place in the result.
//   n = 4    0 -> 1 -> 2 -> 3        rank 2 gets 0 + 1, sends 0 + 1 + 2, keeps 0 + 1
//   Source   The definition (MPI: A Message-Passing Interface Standard 4.1, section 6.11),
//            pipelined.
//   Limits   Slow for small arrays: n-1 hops.
#include <algorithm>

#include "plan/builder.h"

namespace pc {

Plan chain_exscan(const Shape& shape) {
  constexpr uint32_t kSlots = 2;
  const Rank self = shape.rank, last = shape.size - 1;
  const bool is_inner = self > 0 && self < last;
  PlanBuilder plan("chain", shape, shape.split, is_inner ? std::min(kSlots, shape.split) : 0);
  const auto keep = [&](uint32_t c, uint32_t sent) {
    plan.after(sent).copy(scratch(c % kSlots, c), output(c));
  };
  uint32_t sent_before = 0;
  for (uint32_t c = 0; c < shape.split; ++c) {
    if (self == 0 && self < last) plan.send(1, input(c));
    if (self > 0 && self == last) plan.recv(self - 1, output(c));
    if (!is_inner) continue;
    plan.recv(self - 1, scratch(c % kSlots, c));
    plan.reduce(scratch(c % kSlots, c), output(c), {.dst = 1, .src = self});
    const uint32_t sent = plan.send(self + 1, output(c));
    if (c > 0) keep(c - 1, sent_before);
    sent_before = sent;
  }
  if (is_inner) keep(shape.split - 1, sent_before);
  return plan.take();
}

}  // namespace pc
