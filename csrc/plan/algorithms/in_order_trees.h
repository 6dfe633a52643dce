// The two trees behind the double binary tree. In the first tree the ranks are in order: every rank
// in a left subtree is smaller than the subtree's parent. A rank's height is the number of its
// trailing zero bits, so every odd rank is a leaf. Rank 0 is the root and has one child. The second
// tree is the mirror image of the first if n is even, or the first shifted by one rank if n is odd.
// A rank with children in one tree is a leaf in the other (except for one rank if n is odd), so
// every rank uses both directions of its link.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "base/types.h"

namespace pc {

struct TreePlace {
  struct Child {
    Rank rank = 0;
    Rank descendants = 0;  // number of ranks in its subtree, including itself
  };
  Rank parent = -1;             // -1 at the root
  std::vector<Child> children;  // at most two
};

inline TreePlace in_order_place(Rank self, Rank size) {
  TreePlace place;
  if (self == 0) {
    if (size > 1)
      place.children.push_back(
          {static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(size - 1))), size - 1});
    return place;
  }
  const Rank low = self & -self;  // its subtree has the ranks that are less than `low` away
  place.parent = (self ^ low) | (low * 2);
  if (place.parent >= size) place.parent = self ^ low;
  if (low > 1) place.children.push_back({self - low / 2, low - 1});
  Rank step = low / 2;
  while (step > 0 && self + step >= size) step /= 2;
  if (step > 0) place.children.push_back({self + step, std::min(self + low, size) - self - 1});
  return place;
}

// `tree` is 0 or 1.
inline TreePlace double_tree_place(int tree, Rank self, Rank size) {
  if (tree == 0) return in_order_place(self, size);
  const bool mirrors = size % 2 == 0;
  const auto seen = [&](Rank rank) { return mirrors ? size - 1 - rank : (rank + size - 1) % size; };
  const auto back = [&](Rank rank) { return mirrors ? size - 1 - rank : (rank + 1) % size; };
  TreePlace place = in_order_place(seen(self), size);
  if (place.parent >= 0) place.parent = back(place.parent);
  for (TreePlace::Child& child : place.children) child.rank = back(child.rank);
  return place;
}

}  // namespace pc
