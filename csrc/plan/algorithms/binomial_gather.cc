//   Idea     Parts go up a binomial tree: a rank collects the parts of its subtree, which are those
//            of consecutive ranks, and sends them on together.
//   Cost     ceil(log2 n) rounds; the root receives ceil(log2 n) messages. A part is sent once per
//            level that it climbs. Inner ranks need one chunk of scratch per rank of their subtree.
//   n = 4    root 0:   3 -> 2 (p3), 1 -> 0 (p1);   2 -> 0 (p2 p3)
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   For small parts on many ranks. Uneven parts would leave gaps in scratch, so each part
//            is a message of its own.
#include "plan/algorithms/binomial_tree.h"
#include "plan/algorithms/part_runs.h"
#include "plan/builder.h"

namespace pc {

Plan binomial_gather(const Shape& shape) {
  const BinomialTree tree = binomial_tree(shape.rank, shape.root, shape.size);
  const Rank held = tree.descendants();
  const bool is_root = tree.parent < 0, is_leaf = tree.children.empty();
  PlanBuilder plan("binomial", shape, static_cast<uint32_t>(shape.size),
                   is_root || is_leaf ? 0 : static_cast<uint32_t>(held));
  const auto collected = [&](const PartRun& run) {
    return Place{Area::kScratch, {run.skip, run.parts.count}, run.parts};
  };
  const uint32_t self = static_cast<uint32_t>(shape.rank);
  if (!is_root && !is_leaf) plan.copy(input(self), scratch(0, self));
  for (const BinomialTree::Child& child : tree.children) {
    const uint32_t skip = static_cast<uint32_t>((child.rank - shape.rank + shape.size) % shape.size);
    for (PartRun run : part_runs(child.rank, child.descendants, shape.size, !shape.even)) {
      run.skip += skip;
      plan.recv(child.rank, is_root ? outputs(run.parts) : collected(run));
    }
  }
  if (is_root) return plan.take();
  for (const PartRun& run : part_runs(shape.rank, held, shape.size, !shape.even))
    plan.send(tree.parent, is_leaf ? input(self) : collected(run));
  return plan.take();
}

}  // namespace pc
