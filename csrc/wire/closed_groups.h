// The numbers of the groups that a rank has closed. They are kept forever, because a member that
// has not closed the group yet may still send.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace pc {

// Stores ranges of numbers, since most groups are made and closed one after the other.
// Thread-safety: none.
class ClosedGroups {
 public:
  void add(uint32_t group) {
    const auto next = after(group);  // the first range that begins after `group`
    const bool joins_last = next != ranges_.begin() && (next - 1)->last + 1 == group;
    const bool joins_next = next != ranges_.end() && group + 1 == next->first;
    if (joins_last && joins_next) {
      (next - 1)->last = next->last;
      ranges_.erase(next);
    } else if (joins_last) {
      (next - 1)->last = group;
    } else if (joins_next) {
      next->first = group;
    } else if (!contains(group)) {
      ranges_.insert(next, {group, group});
    }
  }
  bool contains(uint32_t group) const {
    if (ranges_.empty()) [[likely]]
      return false;
    const auto next = after(group);
    return next != ranges_.begin() && group <= (next - 1)->last;
  }

 private:
  struct Range {
    uint32_t first, last;
  };
  std::vector<Range>::const_iterator after(uint32_t group) const {
    return std::upper_bound(ranges_.begin(), ranges_.end(), group,
                            [](uint32_t number, const Range& range) { return number < range.first; });
  }
  std::vector<Range>::iterator after(uint32_t group) {
    return ranges_.begin() + (std::as_const(*this).after(group) - ranges_.cbegin());
  }
  std::vector<Range> ranges_;  // in ascending order, with gaps between them
};

}  // namespace pc
