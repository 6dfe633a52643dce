// Puts into words why a call ended for all: who made which call, who is late and where, who gave up. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "wire/control_plane.h"

namespace pc {

// How a group calls its ranks.
class GroupNames {
 public:
  GroupNames() = default;
  // `locations`: by group rank, "host a, pid 5"; may be empty texts.
  GroupNames(Rank rank, std::vector<Rank> world_ranks, std::vector<std::string> locations)
      : rank_(rank),
        world_ranks_(std::move(world_ranks)),
        locations_(std::move(locations)) {}
  Rank rank() const { return rank_; }
  Rank size() const { return static_cast<Rank>(world_ranks_.size()); }
  std::span<const Rank> world_ranks() const { return world_ranks_; }
  Rank to_world(Rank rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  Rank from_world(Rank world_rank) const;                  // -1: no member
  std::string full(Rank rank) const;                       // "rank 3 (host a, pid 5)"
  std::string list(const std::vector<Rank>& ranks) const;  // "ranks 0-2, 5"

 private:
  Rank rank_ = 0;
  std::vector<Rank> world_ranks_;
  std::vector<std::string> locations_;
};

// What this rank's call ends with. `statuses`: of all members, in the order of their group ranks; may be
// empty.
Status failure_of(const CallEnd& why, std::span<const RankStatus> statuses, const GroupNames& names);

// Who keeps the others waiting, for a warning: "rank 3 (host a, pid 5) has not made this call; ...". Empty: nobody.
std::string late_ranks(std::span<const RankStatus> statuses, const GroupNames& names);

// Where one rank stands with a call, and, for messages between two ranks, where it is at all.
std::string rank_status_text(const RankStatus& rank_status, const GroupNames& names);
std::string position_text(const RankStatus& rank_status, const GroupNames& names);

}  // namespace pc
