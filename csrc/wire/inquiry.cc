#include "wire/inquiry.h"

#include <utility>

namespace pc {

Inquiry::Inquiry(std::span<const Rank> members, std::optional<CallEnd> why, TimePoint until)
    : why_(std::move(why)),
      until_(until),
      answered_(members.size()) {
  for (const Rank rank : members) standings_.push_back({rank, {}});
}

void Inquiry::learn(const CallEnd& why) {
  if (why_.has_value() && why_->code != Code::kMismatch && why.code == Code::kMismatch) why_ = why;
}

void Inquiry::store(Rank from, const CallReport& report) {
  for (std::size_t i = 0; i < standings_.size(); ++i) {
    Standing& standing = standings_[i];
    if (standing.rank != from) continue;
    const bool makes_it = report.made() && report.state != CallReport::State::kLeaving;
    if (why_.has_value() && makes_it && standing.report.state == CallReport::State::kNotMade)
      standing.came_late = true;
    standing.report = report;
    answered_[i] = true;
  }
}

CallEnd Inquiry::cause() const {
  CallEnd why = why_.value_or(CallEnd{});
  const bool by_user = why.code == Code::kInterrupted || why.code == Code::kPeerInterrupted;
  if (by_user || why.code == Code::kMismatch) return why;
  uint64_t first = 0;
  for (const Standing& standing : standings_) {
    const CallReport& report = standing.report;
    // A rank in shutdown() has made another call by design; that is told by its state.
    if (!report.made() || report.state == CallReport::State::kLeaving || report.digest == 0) continue;
    if (first != 0 && report.digest != first) {
      why.code = Code::kMismatch;
      why.text = "ranks made different calls; noticed because: " + why.text;
      return why;
    }
    first = report.digest;
  }
  return why;
}

}  // namespace pc
