// Which ranks of the world measure together, and what those put together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/runtime.h"

namespace pc::bench {

// "": the world. "0,2": these two, and the others wait. "even-odd": both halves, at the same time. No rank is in two; the
// first one's first rank prints.
Result<std::vector<std::vector<Rank>>> groups(const std::string& words, Rank size);

// What a rank has to do with them.
struct Membership {
  Communicator& world;
  Communicator* group = nullptr;  // null: the rank stands by
  bool prints = false;
};

// `words` as groups() reads them. Collective among the ranks of a group.
Result<Membership> join_group(Runtime& runtime, const std::string& words);

// Of each value, in its place. Collective.
Status allreduce(Communicator& group, std::span<int64_t> values, ReduceOp op);

// After each row, of all ranks of the world: so a rank that stands by never waits for longer than one. `wrong`, which the ranks
// of a group have counted together, becomes the sum over all groups, if there is one.
Status sum_over_groups(const Membership& own, std::optional<uint64_t>& wrong);

}  // namespace pc::bench
