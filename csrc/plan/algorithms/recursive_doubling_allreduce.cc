//   Idea     In round k, ranks that differ in bit k swap all they have and add it, so the number of
//            contributions in a rank's sum doubles each time. Let p be the largest power of two <=
//            n. An extra rank r >= p only sends its contribution to rank r - p before the rounds,
//            and receives the result after them.
//   Cost     log2(p) rounds, 2 more if n is no power of two; the whole array per round. One scratch
//            chunk.
//   n = 4    round 0   0 <-> 1   2 <-> 3     n = 6 (p = 4)   4 -> 0, 5 -> 1; rounds among 0..3;
//            round 1   0 <-> 2   1 <-> 3                     0 -> 4, 1 -> 5
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   Sends the whole array log2(p) times: for small arrays. One partner computes a + b, the
//            other b + a with swapped weights: all ranks get the same bits only if the kernels give
//            the same bits for both sums.
//   Scratch  A send's memory may be read until the send completes, so arriving data must not be
//            added to that memory earlier. A plain recv_reduce would be right over sockets and
//            wrong over shared memory.
#include <algorithm>
#include <bit>

#include "plan/builder.h"

namespace pc {

Plan recursive_doubling_allreduce(const Shape& shape) {
  const Rank power = static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(shape.size)));
  const Rank extra = shape.size - power;  // number of extra ranks
  const Rank self = shape.rank;

  PlanBuilder plan("recursive_doubling", shape, 1, 1);
  if (self >= power) {
    plan.send(self - power, output(0));
    plan.recv(self - power, output(0));
    return plan.take();
  }
  if (self < extra) plan.recv_reduce(self + power, output(0), {.dst = 1, .src = 1});
  for (Rank distance = 1; distance < power; distance *= 2) {
    // Number of contributions that `rank` holds so far: one for each rank of its block of
    // `distance` ranks, and one for each extra rank that has sent to this block.
    const auto held = [&](Rank rank) {
      const Rank first = rank & ~(distance - 1);
      return distance + std::clamp(extra - first, 0, distance);
    };
    const Rank peer = self ^ distance;
    const uint32_t sent = plan.send(peer, output(0));
    plan.recv(peer, scratch(0, 0));
    plan.after(sent).reduce(scratch(0, 0), output(0), {.dst = held(self), .src = held(peer)});
  }
  if (self < extra) plan.send(self + power, output(0));
  return plan.take();
}

}  // namespace pc
