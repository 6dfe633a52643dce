//   Idea     Every rank sends each other rank's part to that rank, as in pairwise, but combines
//            what it receives along the tree of recursive_doubling_allreduce.cc, near ranks first.
//            Let p be the largest power of two <= n. A leaf is a rank r below p together with rank
//            r + p, if that exists. Two blocks of leaves make one block of twice the size.
//   Cost     n-1 messages of one part each way. Blocks of other ranks wait in scratch, one block of
//            each size. A block that is no chain of ranks (possible from 4 ranks on) is combined in
//            the output and copied to scratch, because scratch is never added to scratch.
//   n = 6    (((0 + 4) + (1 + 5)) + (2 + 3)) on every rank, for every part
//   Source   R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication
//            operations in MPICH, 2005: pairwise exchange, in the order of recursive doubling.
//   Limits   Every rank exchanges messages with every other rank, and receives in the order of the
//            tree. Used if a fixed order of summation is required: the order is the same for all
//            parts, and gives the same bits as the allreduces of fixed order.
#include <algorithm>
#include <bit>

#include "plan/builder.h"

namespace pc {
namespace {

struct Block {  // a range of the tree's leaves
  Rank first, leaves;
};

// Combines this rank's own chunk. At first the output holds this rank's contribution.
class TreeSum {
 public:
  TreeSum(PlanBuilder& plan, const Shape& shape, uint32_t chunk)
      : plan_(plan),
        power_(power_in(shape.size)),
        extra_(shape.size - power_),
        own_(chunk) {
    self_ = shape.rank;
    leaf_ = self_ < power_ ? self_ : self_ - power_;
  }
  static Rank power_in(Rank size) { return static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(size))); }
  static uint32_t slots(Rank size) {  // one per block size, and one for this rank's contribution
    return size < 3 ? 0 : static_cast<uint32_t>(std::countr_zero(static_cast<uint32_t>(power_in(size)))) + 1;
  }

  void build() {
    prepare_blocks();
    if (leaf_ < extra_) plan_.recv_reduce(other_of_leaf(), output(own_), {.dst = 1, .src = 1});
    for (Rank leaves = 1; leaves < power_; leaves *= 2) {
      const Block near = {leaf_ & ~(leaves - 1), leaves}, other = beside(near);
      if (is_chain(other)) {
        add_chain(other, ranks(near));
      } else {
        plan_.reduce(slot(other), output(own_), {.dst = ranks(near), .src = ranks(other)});
      }
    }
  }

 private:
  static Block beside(Block block) { return {block.first ^ block.leaves, block.leaves}; }
  Rank ranks(Block block) const { return block.leaves + std::clamp(extra_ - block.first, 0, block.leaves); }
  // Returns true if the block's ranks are added one by one: the second operand of every sum is a
  // single rank's contribution.
  bool is_chain(Block block) const {
    return block.leaves == 1 || (block.leaves == 2 && block.first + 1 >= extra_);
  }
  Rank other_of_leaf() const { return self_ < power_ ? self_ + power_ : leaf_; }
  Place slot(Block block) const {
    return scratch(static_cast<uint32_t>(std::countr_zero(static_cast<uint32_t>(block.leaves))), own_);
  }

  // Combines in advance, in the output, every block of other ranks that is no chain. The largest
  // block is first: the slots for its smaller sub-blocks are then still free.
  void prepare_blocks() {
    const Place mine = scratch(static_cast<uint32_t>(std::countr_zero(static_cast<uint32_t>(power_))), own_);
    bool is_saved = false;
    for (Rank leaves = power_ / 2; leaves > 1; leaves /= 2) {
      const Block other = beside({leaf_ & ~(leaves - 1), leaves});
      if (is_chain(other)) continue;
      if (!is_saved) plan_.copy(output(own_), mine);
      is_saved = true;
      combine(other);
      plan_.copy(output(own_), slot(other));
    }
    if (is_saved) plan_.copy(mine, output(own_));
  }

  // Combines, in the output, a block that does not contain this rank.
  void combine(Block block) {
    if (is_chain(block)) return take_chain(block, output(own_));
    const Rank half = block.leaves / 2;
    const Block lower = {block.first, half}, upper = {block.first + half, half};
    if (is_chain(upper)) {
      combine(lower);
      return add_chain(upper, ranks(lower));
    }
    combine(upper);
    plan_.copy(output(own_), slot(upper));
    combine(lower);
    plan_.reduce(slot(upper), output(own_), {.dst = ranks(lower), .src = ranks(upper)});
  }

  void add_chain(Block block, Rank held) {
    if (ranks(block) == 1) {
      plan_.recv_reduce(block.first, output(own_), {.dst = held, .src = 1});
      return;
    }
    take_chain(block, slot(block));
    plan_.reduce(slot(block), output(own_), {.dst = held, .src = ranks(block)});
  }

  void take_chain(Block block, const Place& into) {
    Rank held = 0;
    const auto take = [&](Rank from) {
      if (held == 0) {
        plan_.recv(from, into);
      } else {
        plan_.recv_reduce(from, into, {.dst = held, .src = 1});
      }
      ++held;
    };
    for (Rank leaf = block.first; leaf < block.first + block.leaves; ++leaf) {
      take(leaf);
      if (leaf < extra_) take(leaf + power_);
    }
  }

  PlanBuilder& plan_;
  const Rank power_, extra_;  // the first `extra_` leaves have two ranks
  Rank self_ = 0, leaf_ = 0;
  const uint32_t own_;
};

}  // namespace

Plan pairwise_tree_reduce_scatter(const Shape& shape) {
  const Rank n = shape.size;
  PlanBuilder plan("pairwise_tree", shape, static_cast<uint32_t>(n) * shape.split, TreeSum::slots(n));
  for (uint32_t piece = 0; piece < shape.split; ++piece) {
    const auto chunk = [&](Rank part) { return static_cast<uint32_t>(part) * shape.split + piece; };
    for (Rank distance = 1; distance < n; ++distance) {
      const Rank to = (shape.rank + distance) % n;
      plan.send(to, input(chunk(to)));
    }
    TreeSum(plan, shape, chunk(shape.rank)).build();
  }
  return plan.take();
}

}  // namespace pc
