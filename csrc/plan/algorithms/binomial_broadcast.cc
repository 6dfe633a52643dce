//   Idea     Every rank that has the data sends it on, so the number of ranks that have it doubles
//            in every round. The array is cut into `split` chunks. A rank passes a chunk on as soon
//            as it has it, while the next chunk is arriving.
//   Cost     ceil(log2 n) rounds. A rank receives the array once and sends it to each of its
//            children; the root sends it to ceil(log2 n) children. No scratch.
//   n = 4    root 0:   0 -> 2 -> 3       the largest subtree first: it has the longest path
//                      0 -> 1
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005.
//   Limits   The root sends ceil(log2 n) times the array: for large arrays on many ranks scatter +
//            all-gather is better.
#include "plan/algorithms/binomial_tree.h"
#include "plan/builder.h"

namespace pc {

Plan binomial_broadcast(const Shape& shape) {
  const BinomialTree tree = binomial_tree(shape.rank, shape.root, shape.size);
  PlanBuilder plan("binomial", shape, shape.split);
  for (uint32_t chunk = 0; chunk < shape.split; ++chunk) {
    if (tree.parent >= 0) plan.recv(tree.parent, output(chunk));
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
      plan.send(child->rank, output(chunk));
    }
  }
  return plan.take();
}

}  // namespace pc
