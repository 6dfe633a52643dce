// One inquiry about one call to all members of its group, and the reports received so far.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "wire/control_message.h"

namespace pc {

struct RankStatus {
  Rank rank = -1;  // in the world
  CallReport report;
  bool came_late = false;  // it made the call only after the call had been given up
};

class Inquiry {
 public:
  // With `why`, the call was given up (an episode). Without it, the inquiry is a survey.
  Inquiry(std::span<const Rank> members, std::optional<CallEnd> why, TimePoint until);

  TimePoint until() const { return until_; }
  const std::optional<CallEnd>& why() const { return why_; }
  // Adds another reason for the same end. The first reason stays, but a mismatch replaces it,
  // because it explains the other reasons.
  void learn(const CallEnd& why);
  void store(Rank from, const CallReport& report);
  // Returns true if this member's report, or its second part, is still outstanding.
  bool waits_for(std::size_t member) const {
    const CallReport& report = statuses_[member].report;
    // Only the late rank's call may show which rank differs from the rest.
    const bool may_still_come =
        why_.has_value() && why_->code == Code::kMismatch && report.state == CallReport::State::kNotMade;
    return !answered_[member] || report.where_follows || may_still_come;
  }
  const std::vector<RankStatus>& statuses() const { return statuses_; }
  // Returns the reason in the light of all reports: if members made different calls, that is the
  // cause.
  CallEnd cause() const;

 private:
  std::optional<CallEnd> why_;
  TimePoint until_;
  std::vector<RankStatus> statuses_;  // in the order of the members
  std::vector<bool> answered_;
};

}  // namespace pc
