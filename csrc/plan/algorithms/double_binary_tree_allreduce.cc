//   Idea     Each of two binary trees reduces and broadcasts half of the array. In each tree sums
//            go up to the root, chunk after chunk, and results go down again while later chunks
//            still go up. Inner ranks of one tree are leaves of the other, so every rank sends and
//            receives all the time.
//   Cost     About 2 log2(n) rounds for the first chunk, and each rank sends 2 times the array in
//            all (a ring 2(n-1)/n times, but in 2(n-1) rounds). No scratch. `split` chunks per
//            tree.
//   n = 4    tree 0:   0 - 2 - 1        tree 1:   3 - 1 - 2          up: sums, lanes 0 and 2
//                           \ 3                        \ 0           down: results, lanes 1 and 3
//   Source   P. Sanders, J. Speck and J. L. Traeff, Two-tree algorithms for full bandwidth
//            broadcast, reduction and scan, 2009. The trees of NCCL
//            (https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/).
//   Limits   For many ranks and arrays too small to fill a ring. An element's order of summation
//            depends on the half of the array that contains it.
#include "plan/algorithms/in_order_trees.h"
#include "plan/builder.h"

namespace pc {

Plan double_binary_tree_allreduce(const Shape& shape) {
  PlanBuilder plan("double_binary_tree", shape, 2 * shape.split);
  for (int tree = 0; tree < 2; ++tree) {
    const TreePlace place = double_tree_place(tree, shape.rank, shape.size);
    const uint8_t up = static_cast<uint8_t>(2 * tree), down = static_cast<uint8_t>(up + 1);
    for (uint32_t c = 0; c < shape.split; ++c) {
      const Place chunk = output(static_cast<uint32_t>(tree) * shape.split + c);
      plan.lane(up);
      uint32_t summed = 0;
      Rank held = 1;
      for (const TreePlace::Child& child : place.children) {
        summed = plan.recv_reduce(child.rank, chunk, {.dst = held, .src = child.descendants});
        held += child.descendants;
      }
      if (place.parent >= 0) plan.send(place.parent, chunk);
      plan.lane(down);
      if (place.parent >= 0) plan.recv(place.parent, chunk);
      for (const TreePlace::Child& child : place.children) {
        if (place.parent < 0) plan.after(summed);
        plan.send(child.rank, chunk);
      }
    }
  }
  return plan.take();
}

}  // namespace pc
