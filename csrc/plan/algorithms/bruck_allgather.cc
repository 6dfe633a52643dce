//   Idea     A rank r holds the parts of consecutive ranks, beginning with its own (rank 0 follows
//            the last rank). In a round in which every rank holds m parts, rank r receives up to m
//            more parts from rank r + m, and sends as many to rank r - m.
//   Cost     ceil(log2 n) rounds for every n; each rank sends n-1 parts in all. No scratch: parts
//            are at their final place from the start, and a run that wraps around the end of the
//            array becomes two messages (Bruck's own form rotates at the end).
//   n = 5    round 0   rank 0 holds 0, gets 1           from 1
//            round 1   rank 0 holds 0 1, gets 2 3       from 2
//            round 2   rank 0 holds 0 1 2 3, gets 4     from 4
//   Source   J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, Efficient algorithms for
//            all-to-all communications in multiport message-passing systems, 1997.
//   Limits   For small parts. For large parts a ring is better, because all its messages go between
//            adjacent ranks.
#include <algorithm>

#include "plan/algorithms/part_runs.h"
#include "plan/builder.h"

namespace pc {

Plan bruck_allgather(const Shape& shape) {
  const Rank n = shape.size;
  PlanBuilder plan("bruck", shape, static_cast<uint32_t>(n) * shape.split);
  for (Rank held = 1; held < n; held *= 2) {
    const Rank count = std::min(held, n - held);
    const Rank to = (shape.rank + n - held) % n, from = (shape.rank + held) % n;
    for (const PartRun& run : part_runs(shape.rank, count, n)) plan.send(to, outputs(run.parts));
    for (const PartRun& run : part_runs(from, count, n)) plan.recv(from, outputs(run.parts));
  }
  return plan.take();
}

}  // namespace pc
