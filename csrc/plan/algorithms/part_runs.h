// Parts of neighbouring ranks, going round after the last rank, as runs that lie together in the array.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"

namespace pc {

struct PartRun {
  Chunks parts;       // by name; one chunk per part
  uint32_t skip = 0;  // how many parts come before it
};

// `count` parts from rank `first` on. One run, or two if they go round; `each`: one for every part, for memory where parts
// of unknown sizes do not lie together.
inline std::vector<PartRun> part_runs(Rank first, Rank count, Rank size, bool each = false) {
  std::vector<PartRun> runs;
  for (Rank done = 0; done < count;) {
    const Rank rank = (first + done) % size;
    const Rank length = each ? 1 : std::min(count - done, size - rank);
    runs.push_back(
        {{static_cast<uint32_t>(rank), static_cast<uint32_t>(length)}, static_cast<uint32_t>(done)});
    done += length;
  }
  return runs;
}

}  // namespace pc
