// The tree behind binomial broadcast, reduce, gather and scatter. The place of a rank is (rank -
// root) mod n, so the root has place 0. The parent of a place is the place without its lowest set
// bit. The subtree of a place has all places that differ from it at most in its trailing zero bits.
#pragma once

#include <algorithm>
#include <vector>

#include "base/types.h"

namespace pc {

struct BinomialTree {
  struct Child {
    Rank rank = 0;
    Rank descendants = 0;  // number of ranks in its subtree, including itself
  };
  Rank parent = -1;             // -1 at the root
  std::vector<Child> children;  // smallest subtree first

  Rank descendants() const {
    Rank count = 1;
    for (const Child& child : children) count += child.descendants;
    return count;
  }
};

inline BinomialTree binomial_tree(Rank self, Rank root, Rank size) {
  BinomialTree tree;
  const Rank place = (self - root + size) % size;
  const auto rank_at = [&](Rank p) { return (p + root) % size; };
  for (Rank bit = 1; bit < size; bit *= 2) {
    if ((place & bit) != 0) {
      tree.parent = rank_at(place - bit);
      break;
    }
    const Rank child = place + bit;
    if (child < size) tree.children.push_back({rank_at(child), std::min(bit, size - child)});
  }
  return tree;
}

}  // namespace pc
