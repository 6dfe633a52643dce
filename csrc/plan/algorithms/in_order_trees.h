// The two trees behind the double binary tree. In the first, ranks stand in order: what is left of a rank in the drawing
// is smaller. A rank's height is the number of its trailing zero bits, so every odd rank is a leaf, and rank 0 is the root
// with one child. The second is the first seen in a mirror, or, for odd n, shifted by one: whoever has children in one is
// a leaf in the other (but for one rank if n is odd), so both directions of everybody's link are busy.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "base/types.h"

namespace pc {

struct TreePlace {
  struct Child {
    Rank rank = 0;
    Rank descendants = 0;  // ranks in its subtree, itself included
  };
  Rank parent = -1;             // -1: this is the root
  std::vector<Child> children;  // two at most
};

inline TreePlace in_order_place(Rank self, Rank size) {
  TreePlace place;
  if (self == 0) {
    if (size > 1)
      place.children.push_back(
          {static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(size - 1))), size - 1});
    return place;
  }
  const Rank low = self & -self;  // its subtree: all ranks nearer than that
  place.parent = (self ^ low) | (low * 2);
  if (place.parent >= size) place.parent = self ^ low;
  if (low > 1) place.children.push_back({self - low / 2, low - 1});
  Rank step = low / 2;
  while (step > 0 && self + step >= size) step /= 2;
  if (step > 0) place.children.push_back({self + step, std::min(self + low, size) - self - 1});
  return place;
}

// `tree`: 0 or 1.
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
