// From which sizes on a call takes another way through shared memory, and how large the pieces are. They depend on the
// machine: usual_limits() are good on those that we know, `pycollective tune` measures others. The same on all ranks of a
// group, which rank 0 sees to when the ranks meet.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/export.h"
#include "base/status.h"

namespace pc::shm {

struct Limits {
  std::size_t
      combined_at_once;  // the largest array of an allreduce or reduce that is one exchange; above: rounds
  std::size_t moved_at_once;  // the same of all other collectives
  std::size_t least_chunk;    // of a round, for one reader
  std::size_t most_chunk;
  std::size_t
      in_place_from;  // arrays in the heap that a call overwrites are read where they lie from here on
  std::size_t past_caches_from;  // results of that size are stored past the caches
  std::size_t
      private_from;  // calls that only move so much may have their readers fetch it from private memory
  std::size_t ring;  // for what a rank gives the others; half of it again for results

  // Several are on their way at once.
  std::size_t largest_message() const { return ring / 4; }
  bool operator==(const Limits&) const = default;
};

PC_EXPORT Limits usual_limits(std::size_t ranks);

inline constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();  // where a size may be "inf"

// One row for each limit: what a profile and people call it, and what is allowed.
struct LimitRow {
  std::string_view name;
  std::size_t Limits::*limit;
  std::size_t least, most;
  std::size_t multiple;  // of which it must be one
  bool may_be_never;
};
PC_EXPORT std::span<const LimitRow> limit_table();

// kInvalidArgument: there is no such limit, or it cannot be that.
Status set_limit(Limits& limits, std::string_view name, std::size_t value);
Status check(const Limits& limits);  // what can only be said of all together

// Groups of so many ranks whose limits are not the usual ones.
using LimitsByRanks = std::map<std::size_t, Limits>;
Limits limits_for(const LimitsByRanks& exceptions, std::size_t ranks);

}  // namespace pc::shm
