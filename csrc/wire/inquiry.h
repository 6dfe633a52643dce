// An inquiry to all members of a group about one call, and the reports received so far.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "wire/control_message.h"

namespace pc {

struct RankStatus {
  Rank rank = -1;  // world rank
  CallReport report;
  bool entered_late = false;  // the rank made the call after another rank had given it up
};

class Inquiry {
 public:
  // With `why`, the call was given up (an episode). Without it, the inquiry is a survey.
  Inquiry(std::span<const Rank> members, std::optional<CallEnd> why, TimePoint until);

  TimePoint until() const { return until_; }
  const std::optional<CallEnd>& why() const { return why_; }
  // Adds another reason for the end of the call. The first reason is kept, but a mismatch replaces
  // any other reason, because it explains the other reasons.
  void learn(const CallEnd& why);
  void store(Rank from, const CallReport& report);
  // Returns true if this member's report, or its second part, is still outstanding.
  bool waits_for(std::size_t member) const {
    const CallReport& report = statuses_[member].report;
    // After a mismatch, also waits for ranks that have not made the call yet: possibly only the
    // call of such a rank shows which rank differs from the rest.
    const bool may_still_come =
        why_.has_value() && why_->code == Code::kMismatch && report.state == CallReport::State::kNotMade;
    return !answered_[member] || report.where_follows || may_still_come;
  }
  const std::vector<RankStatus>& statuses() const { return statuses_; }
  // Returns the cause after all reports: a mismatch if members made different calls and the user
  // did not interrupt the call, else the stored reason.
  CallEnd cause() const;

 private:
  std::optional<CallEnd> why_;
  TimePoint until_;
  std::vector<RankStatus> statuses_;  // in the order of the members
  std::vector<bool> answered_;
};

}  // namespace pc
