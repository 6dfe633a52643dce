// Splits the parts of consecutive ranks (rank 0 follows the last rank) into runs that are
// contiguous in the array.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"

namespace pc {

struct PartRun {
  Chunks parts;       // by name; one chunk per part
  uint32_t skip = 0;  // number of parts before this run
};

// Returns the runs of `count` parts, beginning with the part of rank `first`: one run, or two if
// the ranks wrap around. With `each`, every part is a run of its own, for memory in which parts of
// unknown sizes are not contiguous.
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
