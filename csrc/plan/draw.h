// The messages of all ranks of a small world as a table for people: a column per rank, a line per round.
#pragma once

#include "plan/source.h"

namespace pc {

inline constexpr Rank kMostDrawnRanks = 8;
// What rank 1 sees:  c2>0 c3>3 +c1<2     sends chunk 2 to rank 0 and chunk 3 to rank 3, adds chunk 1 from rank 2; without the
// plus it takes it as it is. A message's round: how many messages had to come before it on the longest chain.
// Long tables end after `most_rounds`.
Result<std::string> draw(PlanSource& plans, uint32_t most_rounds = 32);

}  // namespace pc
