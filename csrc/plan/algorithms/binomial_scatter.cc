//   Idea     Binomial gather backwards: a rank receives the parts of its whole subtree together,
//            keeps its own and passes the rest on.
//   Cost     ceil(log2 n) rounds; the root sends ceil(log2 n) messages. A part is sent once per
//            level that it descends. Inner ranks need one chunk of scratch per rank of their
//            subtree.
//   n = 4    root 0:   0 -> 2 (p2 p3), 0 -> 1 (p1);   2 -> 3 (p3)
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   For small parts on many ranks. Uneven parts would leave gaps in scratch, so each part
//            is a message of its own.
#include "plan/algorithms/binomial_tree.h"
#include "plan/algorithms/part_runs.h"
#include "plan/builder.h"

namespace pc {

Plan binomial_scatter(const Shape& shape) {
  const BinomialTree tree = binomial_tree(shape.rank, shape.root, shape.size);
  const Rank held = tree.descendants();
  const bool is_root = tree.parent < 0, is_leaf = tree.children.empty();
  PlanBuilder plan("binomial", shape, static_cast<uint32_t>(shape.size),
                   is_root || is_leaf ? 0 : static_cast<uint32_t>(held));
  const auto received = [&](const PartRun& run) {
    return Place{Area::kScratch, {run.skip, run.parts.count}, run.parts};
  };
  const uint32_t self = static_cast<uint32_t>(shape.rank);
  if (!is_root) {
    for (const PartRun& run : part_runs(shape.rank, held, shape.size, !shape.even))
      plan.recv(tree.parent, is_leaf ? output(self) : received(run));
  }
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
    const uint32_t skip = static_cast<uint32_t>((child->rank - shape.rank + shape.size) % shape.size);
    for (PartRun run : part_runs(child->rank, child->descendants, shape.size, !shape.even)) {
      run.skip += skip;
      plan.send(child->rank, is_root ? inputs(run.parts) : received(run));
    }
  }
  if (!is_root && !is_leaf) plan.copy(scratch(0, self), output(self));
  return plan.take();
}

}  // namespace pc
