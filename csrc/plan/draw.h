// Prints the messages of all ranks of a small world as a table: one column per rank, one line per
// round.
#pragma once

#include "plan/source.h"

namespace pc {

inline constexpr Rank kMostDrawnRanks = 8;
// The column of rank 1 may read "c2>0 c3>3 +c1<2": it sends chunk 2 to rank 0 and chunk 3 to rank
// 3, and adds chunk 1 from rank 2. Without the plus it stores the chunk. The round of a message is
// the length of the longest chain of messages before it. A table ends after `most_rounds` rounds.
Result<std::string> draw(PlanSource& plans, uint32_t most_rounds = 32);

}  // namespace pc
