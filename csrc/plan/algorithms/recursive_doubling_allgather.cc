//   Idea     In round k, ranks that differ in bit k swap all they have, so the data of a rank
//            doubles each time.
//   Cost     log2(n) rounds; each rank sends n-1 parts in all. No scratch: swapped parts are
//            contiguous in the result.
//   n = 4    round 0   0 <-> 1   2 <-> 3     one part each way
//            round 1   0 <-> 2   1 <-> 3     two parts each way
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   Powers of two only; Bruck's algorithm works for every n.
#include "plan/builder.h"

namespace pc {

Plan recursive_doubling_allgather(const Shape& shape) {
  PlanBuilder plan("recursive_doubling", shape, static_cast<uint32_t>(shape.size) * shape.split);
  for (Rank distance = 1; distance < shape.size; distance *= 2) {
    const Rank peer = shape.rank ^ distance;
    const auto held = [&](Rank rank) {
      return outputs({static_cast<uint32_t>(rank & ~(distance - 1)), static_cast<uint32_t>(distance)});
    };
    plan.send(peer, held(shape.rank));
    plan.recv(peer, held(peer));
  }
  return plan.take();
}

}  // namespace pc
