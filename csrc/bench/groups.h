// Which ranks of the world measure together, and what they combine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/runtime.h"

namespace pc::bench {

// Returns the groups that `words` specifies. "" is the world. "0,2" is these two ranks, and the
// other ranks wait. "even-odd" is two groups that measure at the same time. No rank is in two
// groups. The first rank of the first group prints.
Result<std::vector<std::vector<Rank>>> groups(const std::string& words, Rank size);

// The groups as one rank sees them.
struct Membership {
  Communicator& world;
  Communicator* group = nullptr;  // null: the rank only waits
  bool prints = false;
};

// `words` is in the format of groups(). Collective among the ranks of a group.
Result<Membership> join_group(Runtime& runtime, const std::string& words);

// Reduces each value in place. Collective.
Status allreduce(Communicator& group, std::span<int64_t> values, ReduceOp op);

// All ranks of the world call this after each row, so that a rank that only waits never waits for
// longer than one row. If `wrong` is set, it is the number that this rank's group has counted, and
// becomes the sum over all groups.
Status sum_over_groups(const Membership& own, std::optional<uint64_t>& wrong);

}  // namespace pc::bench
