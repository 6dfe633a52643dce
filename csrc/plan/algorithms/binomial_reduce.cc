//   Idea     The broadcast tree backwards: a rank adds its own contribution and those that arrive
//            from its children, and passes the sum to its parent. The array is cut into `split`
//            chunks that follow each other up the tree.
//   Cost     ceil(log2 n) rounds; each rank but the root sends the array once. Inner ranks need two
//            chunks of scratch, used alternately: one is filled while the other is being sent.
//            Leaves send their input without packing.
//   n = 4    root 0:   3 -> 2 -> 0       the smallest subtree first: it is ready first
//                      1 -> 0
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   The root receives ceil(log2 n) times the array. Each chunk is summed in the same order
//            in every run.
#include <array>

#include "plan/algorithms/binomial_tree.h"
#include "plan/builder.h"

namespace pc {

Plan binomial_reduce(const Shape& shape) {
  constexpr uint32_t kSlots = 2;
  const BinomialTree tree = binomial_tree(shape.rank, shape.root, shape.size);
  const bool is_root = tree.parent < 0;
  const bool is_leaf = tree.children.empty();
  const bool needs_scratch = !is_root && !is_leaf;

  PlanBuilder plan("binomial", shape, shape.split, needs_scratch ? std::min(kSlots, shape.split) : 0);
  std::array<uint32_t, kSlots> sent{};  // the send that last read each slot
  for (uint32_t chunk = 0; chunk < shape.split; ++chunk) {
    const uint32_t slot = chunk % kSlots;
    const Place sum = is_root ? output(chunk) : is_leaf ? input(chunk) : scratch(slot, chunk);
    if (needs_scratch) plan.after(sent[slot]).copy(input(chunk), sum);
    Rank held = 1;
    for (const BinomialTree::Child& child : tree.children) {
      plan.recv_reduce(child.rank, sum, {.dst = held, .src = child.descendants});
      held += child.descendants;
    }
    if (!is_root) sent[slot] = plan.send(tree.parent, sum);
  }
  return plan.take();
}

}  // namespace pc
