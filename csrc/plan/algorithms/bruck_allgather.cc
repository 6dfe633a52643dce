// Idea     A rank holds the parts of the ranks from itself on, going round. In every round it gets as many again from the
//          rank that is just beyond them, and gives its own to the rank that is as far before it.
// Cost     ceil(log2 n) rounds for every n; each rank sends n-1 parts in all. No scratch: parts lie where they belong from the
//          start, and what runs over the end of the array goes as two messages (Bruck's own form rotates at the end).
// n = 5    round 0   rank 0 holds 0, gets 1           from 1
//          round 1   rank 0 holds 0 1, gets 2 3       from 2
//          round 2   rank 0 holds 0 1 2 3, gets 4     from 4
// Source   J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, Efficient algorithms for all-to-all communications in
//          multiport message-passing systems, 1997.
// Limits   For small parts; large ones travel better around a ring, where all messages go to local peers.
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
