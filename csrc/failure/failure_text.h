// Describes why a call ended on all ranks: which rank made which call, which ranks are late and
// what they are doing, which rank gave the call up. These functions are pure.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "wire/control_plane.h"

namespace pc {

// The names of a group's ranks in texts.
class GroupNames {
 public:
  GroupNames() = default;
  // `locations` has one text for each group rank, for example "host a, pid 5". A text may be empty.
  GroupNames(Rank rank, std::vector<Rank> world_ranks, std::vector<std::string> locations)
      : rank_(rank),
        world_ranks_(std::move(world_ranks)),
        locations_(std::move(locations)) {}
  Rank rank() const { return rank_; }
  Rank size() const { return static_cast<Rank>(world_ranks_.size()); }
  std::span<const Rank> world_ranks() const { return world_ranks_; }
  Rank to_world(Rank rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  Rank from_world(Rank world_rank) const;                  // returns -1 if it is not a member
  std::string full(Rank rank) const;                       // "rank 3 (host a, pid 5)"
  std::string list(const std::vector<Rank>& ranks) const;  // "ranks 0-2, 5"

 private:
  Rank rank_ = 0;
  std::vector<Rank> world_ranks_;
  std::vector<std::string> locations_;
};

// Returns the error for this rank's call, which ended because of `why`. `statuses` has all members
// in the order of their group ranks, or is empty.
Status failure_of(const CallEnd& why, std::span<const RankStatus> statuses, const GroupNames& names);

// Names the ranks for which the call waits, for a warning: "rank 3 (host a, pid 5) has not made
// this call; ...". Returns an empty text if no rank is late.
std::string late_ranks(std::span<const RankStatus> statuses, const GroupNames& names);

// rank_status_text() describes the state of a call on one rank. position_text() describes what a
// rank is doing, for a message between two ranks.
std::string rank_status_text(const RankStatus& rank_status, const GroupNames& names);
std::string position_text(const RankStatus& rank_status, const GroupNames& names);

}  // namespace pc
