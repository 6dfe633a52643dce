#include "wire/inquiry.h"

#include <utility>

namespace pc {

Inquiry::Inquiry(std::span<const Rank> members, std::optional<CallEnd> why, TimePoint until)
    : why_(std::move(why)),
      until_(until),
      answered_(members.size()) {
  for (const Rank rank : members) statuses_.push_back({rank, {}});
}

void Inquiry::learn(const CallEnd& why) {
  if (why_.has_value() && why_->code != Code::kMismatch && why.code == Code::kMismatch) why_ = why;
}

void Inquiry::store(Rank from, const CallReport& report) {
  for (std::size_t i = 0; i < statuses_.size(); ++i) {
    RankStatus& rank_status = statuses_[i];
    if (rank_status.rank != from) continue;
    const bool makes_it = report.made() && report.state != CallReport::State::kLeaving;
    if (why_.has_value() && makes_it && rank_status.report.state == CallReport::State::kNotMade)
      rank_status.entered_late = true;
    rank_status.report = report;
    answered_[i] = true;
  }
}

CallEnd Inquiry::cause() const {
  CallEnd why = why_.value_or(CallEnd{});
  const bool by_user = why.code == Code::kInterrupted || why.code == Code::kPeerInterrupted;
  if (by_user || why.code == Code::kMismatch) return why;
  uint64_t first = 0;
  for (const RankStatus& rank_status : statuses_) {
    const CallReport& report = rank_status.report;
    // The digest of a rank in shutdown() always differs, and its state already shows the reason.
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
