// One question about one call, put to all members of its group, and what they have answered so far.
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
  bool came_late = false;  // it made the call only when it had been given up already
};

class Inquiry {
 public:
  // `why`: the call was given up (an episode); without, somebody only wants to know (a survey).
  Inquiry(std::span<const Rank> members, std::optional<CallEnd> why, TimePoint until);

  TimePoint until() const { return until_; }
  const std::optional<CallEnd>& why() const { return why_; }
  // Another reason for the same end. The first one known stays, but disagreement explains the others.
  void learn(const CallEnd& why);
  void store(Rank from, const CallReport& report);
  // Whether this member's answer, or the second part of it, is still to come.
  bool waits_for(std::size_t member) const {
    const CallReport& report = statuses_[member].report;
    // Only with the late rank's call it may show who is the odd one.
    const bool may_still_come =
        why_.has_value() && why_->code == Code::kMismatch && report.state == CallReport::State::kNotMade;
    return !answered_[member] || report.where_follows || may_still_come;
  }
  const std::vector<RankStatus>& statuses() const { return statuses_; }
  // The reason in the light of all answers: if members made different calls, that is why it did not work.
  CallEnd cause() const;

 private:
  std::optional<CallEnd> why_;
  TimePoint until_;
  std::vector<RankStatus> statuses_;  // in the order of the members
  std::vector<bool> answered_;
};

}  // namespace pc
