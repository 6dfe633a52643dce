// The sizes from which a call uses another algorithm or path through shared memory, and the sizes
// of chunks and rings. The best sizes depend on the machine: usual_limits() suits the machines
// known so far, and `pycollective tune` measures other machines. All ranks of a group have the same
// limits, which rank 0 ensures during rendezvous.
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
  // largest array of an allreduce or reduce in one exchange; larger arrays use rounds
  std::size_t combined_at_once;
  std::size_t moved_at_once;  // the same for all other collectives
  std::size_t least_chunk;    // smallest and largest chunk of one round for one reader
  std::size_t most_chunk;
  std::size_t in_place_from;     // from this size on, heap arrays that a call overwrites are read in place
  std::size_t past_caches_from;  // results of this size or more are stored past the caches
  std::size_t private_from;  // in calls that move this much or more, readers may read a rank's private memory
  std::size_t ring;          // size of a rank's ring; it has another ring of half this size for results

  // Several messages must fit in the ring at once.
  std::size_t largest_message() const { return ring / 4; }
  bool operator==(const Limits&) const = default;
};

PC_EXPORT Limits usual_limits(std::size_t ranks);

// the value "inf" of a limit that may be infinite
inline constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

// One row for each limit: its name for profiles and users, and the allowed values.
struct LimitRow {
  std::string_view name;
  std::size_t Limits::*limit;
  std::size_t least, most;
  std::size_t multiple;  // the value must be a multiple of this
  bool may_be_never;
};
PC_EXPORT std::span<const LimitRow> limit_table();

// Returns kInvalidArgument if no limit has this name, or if the limit cannot have this value.
Status set_limit(Limits& limits, std::string_view name, std::size_t value);
Status check(const Limits& limits);  // checks conditions on several limits together

// Maps a number of ranks to the limits of groups of that size, if they are not the usual ones.
using LimitsByRanks = std::map<std::size_t, Limits>;
Limits limits_for(const LimitsByRanks& exceptions, std::size_t ranks);

}  // namespace pc::shm
