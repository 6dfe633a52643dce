#include "failure/failure_text.h"

#include <algorithm>
#include <map>
#include <vector>

#include "failure/descriptor.h"

namespace pc {
namespace {

struct Field {
  std::string name, value;
};
std::vector<Field> fields_in(std::string_view text) {
  std::vector<Field> fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    fields.push_back({std::string(line.substr(0, equals)), std::string(line.substr(equals + 1))});
  }
  return fields;
}
std::string value_of(const std::vector<Field>& fields, std::string_view name) {
  for (const Field& field : fields) {
    if (field.name == name) return field.value;
  }
  return {};
}

std::string kind_of(const CallReport& report, const std::vector<Field>& fields) {
  return report.state == CallReport::State::kLeaving ? "shutdown" : value_of(fields, "collective");
}

// Returns for example "dtype float64 instead of float32, op max instead of sum". If the collective
// differs, only that is reported.
std::string difference(const CallReport& odd_report, const CallReport& usual_report) {
  const std::vector<Field> odd = fields_in(odd_report.call), usual = fields_in(usual_report.call);
  const std::string here = kind_of(odd_report, odd), there = kind_of(usual_report, usual);
  if (here != there) return here + " instead of " + there;
  std::string text;
  for (const Field& field : odd) {
    const std::string other = value_of(usual, field.name);
    if (field.value == other || field.name == "algorithm") continue;
    text += (text.empty() ? "" : ", ") + field.name + " " + field.value + " instead of " +
            (other.empty() ? "none" : other);
  }
  for (const Field& field : usual) {
    if (value_of(odd, field.name).empty())
      text += (text.empty() ? "" : ", ") + ("no " + field.name + " instead of " + field.value);
  }
  return text.empty() ? "another algorithm" : text;
}

// The ranks that made the same call.
struct Cohort {
  std::vector<Rank> ranks;
  const CallReport* first = nullptr;
};
std::vector<Cohort> cohorts_of(std::span<const RankStatus> statuses) {
  std::map<uint64_t, Cohort> by_digest;
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    const CallReport& report = statuses[rank].report;
    if (!report.made() || report.digest == 0) continue;
    Cohort& cohort = by_digest[report.digest];
    cohort.ranks.push_back(static_cast<Rank>(rank));
    if (cohort.first == nullptr) cohort.first = &report;
  }
  std::vector<Cohort> cohorts;
  cohorts.reserve(by_digest.size());
  for (auto& [digest, cohort] : by_digest) cohorts.push_back(std::move(cohort));
  std::stable_sort(cohorts.begin(), cohorts.end(), [](const Cohort& a, const Cohort& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size() : a.ranks < b.ranks;
  });
  return cohorts;
}

std::string made(const CallReport& report) {
  const std::string what = report.state == CallReport::State::kLeaving ? "shutdown" : call_text(report.call);
  return what + (report.site.empty() ? "" : " at " + report.site);
}

std::string table(std::span<const RankStatus> statuses, const std::vector<Cohort>& cohorts,
                  const GroupNames& names) {
  std::string text;
  for (const Cohort& cohort : cohorts)
    text += "\n    " + names.list(cohort.ranks) + ": " + made(*cohort.first);
  for (const RankStatus& rank_status : statuses) {
    if (rank_status.report.made() && rank_status.report.digest != 0) continue;
    text += "\n    " + rank_status_text(rank_status, names);
  }
  return text;
}

Status exited(Rank rank, const GroupNames& names) {
  return Status(
             Code::kPeerExited,
             names.full(rank) + " called shutdown(), aborted this group or ended instead of making this call")
      .with_peer(rank);
}

Status disagreement(std::span<const RankStatus> statuses, const GroupNames& names, const CallEnd& why) {
  const auto leaving = [](const RankStatus& s) { return s.report.state == CallReport::State::kLeaving; };
  const auto gone = std::find_if(statuses.begin(), statuses.end(), leaving);
  const bool we_leave = statuses.size() == static_cast<std::size_t>(names.size()) &&
                        leaving(statuses[static_cast<std::size_t>(names.rank())]);
  // This is no mismatch: a rank has left instead of making the call.
  if (gone != statuses.end() && !we_leave) return exited(names.from_world(gone->rank), names);
  const std::vector<Cohort> cohorts = cohorts_of(statuses);
  if (cohorts.size() < 2) {
    const Rank by = names.from_world(why.by);
    const bool is_own = by == names.rank();
    const std::string found = is_own ? why.text : names.full(by) + " says that " + why.text;
    return Status(Code::kMismatch,
                  "the ranks made different calls: " + found + table(statuses, cohorts, names))
        .with_peer(is_own ? -1 : by);
  }
  const Cohort& usual = cohorts[0];
  std::string text = "the ranks made different calls";
  Rank peer = -1;
  if (usual.ranks.size() > cohorts[1].ranks.size()) {
    for (std::size_t i = 1; i < cohorts.size(); ++i) {
      text += (i == 1 ? ": " : "; ") + names.list(cohorts[i].ranks) + " made " +
              difference(*cohorts[i].first, *usual.first);
      if (peer < 0 && cohorts[i].ranks[0] != names.rank()) peer = cohorts[i].ranks[0];
    }
  } else {  // the two largest cohorts have equally many ranks
    text += ": " + names.list(cohorts[1].ranks) + " made " + difference(*cohorts[1].first, *usual.first);
    for (const Cohort& cohort : cohorts) {
      if (peer < 0 && cohort.ranks[0] != names.rank()) peer = cohort.ranks[0];
    }
  }
  return Status(Code::kMismatch, text + table(statuses, cohorts, names)).with_peer(peer);
}

std::string position(const CallReport& report) {
  std::string text = report.last_call.empty() ? "it has completed no collective of this group yet"
                                              : "its last completed collective is " + report.last_call;
  if (!report.where.empty())
    text += (report.where.starts_with("outside") ? "; it stands " : "; it stands at ") + report.where;
  return text;
}

bool is_late(const RankStatus& rank_status) {
  switch (rank_status.report.state) {
    case CallReport::State::kNotMade:
    case CallReport::State::kUnknown:
    case CallReport::State::kLeaving: return true;
    default: return rank_status.entered_late;
  }
}

}  // namespace

Rank GroupNames::from_world(Rank world_rank) const {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  return found == world_ranks_.end() ? -1 : static_cast<Rank>(found - world_ranks_.begin());
}

std::string GroupNames::full(Rank rank) const {
  const std::size_t at = static_cast<std::size_t>(rank);
  if (rank < 0 || at >= locations_.size()) return "a rank of this group";
  const std::string name = "rank " + std::to_string(rank);
  return locations_[at].empty() ? name : name + " (" + locations_[at] + ")";
}

std::string GroupNames::list(const std::vector<Rank>& ranks) const {
  if (ranks.size() == 1) return full(ranks[0]);
  std::string text = "ranks ";
  for (std::size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    for (last = first; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1; ++last) {
    }
    text += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += (last > first + 1 ? "-" : ", ") + std::to_string(ranks[last]);
  }
  return text;
}

std::string rank_status_text(const RankStatus& rank_status, const GroupNames& names) {
  const CallReport& report = rank_status.report;
  std::string text = names.full(names.from_world(rank_status.rank));
  if (report.state == CallReport::State::kLeaving) return text + " is in shutdown()";
  if (is_late(rank_status) && names.from_world(rank_status.rank) == names.rank())
    return "this rank came to it only after that";
  if (rank_status.entered_late)
    return text + " came to it only after that" + (report.site.empty() ? "" : ", at " + report.site);
  switch (report.state) {
    case CallReport::State::kUnknown:
      return text + " does not answer: it is stopped, starved of CPU time, or out of reach";
    case CallReport::State::kRunning: return text + " is in " + made(report);
    case CallReport::State::kDone: return text + " has completed this call";
    case CallReport::State::kGivenUp: return text + " has given this call up";
    case CallReport::State::kLeaving:
    case CallReport::State::kNotMade: break;
  }
  return text + " has not made this call; " + position(report);
}

std::string position_text(const RankStatus& rank_status, const GroupNames& names) {
  const CallReport& report = rank_status.report;
  if (report.state != CallReport::State::kNotMade) {
    const bool says_more = !report.where.empty() && report.where != report.site;
    return rank_status_text(rank_status, names) +
           (says_more ? "; its program stands at " + report.where : "");
  }
  return "of " + names.full(names.from_world(rank_status.rank)) + " is known: " + position(report);
}

std::string late_ranks(std::span<const RankStatus> statuses, const GroupNames& names) {
  constexpr int kNamed = 8;
  std::string text;
  int late = 0;
  for (const RankStatus& rank_status : statuses) {
    if (!is_late(rank_status)) continue;
    if (++late <= kNamed) text += (late == 1 ? "" : "; ") + rank_status_text(rank_status, names);
  }
  if (late > kNamed) text += "; and " + std::to_string(late - kNamed) + " more";
  return text;
}

Status failure_of(const CallEnd& why, std::span<const RankStatus> statuses, const GroupNames& names) {
  const Rank by = names.from_world(why.by);
  const std::string rank_name = by == names.rank() ? std::string() : names.full(by) + " ";
  const Rank peer = by == names.rank() ? -1 : by;
  switch (why.code) {
    case Code::kMismatch: return disagreement(statuses, names, why);
    case Code::kInterrupted:
      return Status(Code::kPeerInterrupted, rank_name + "was interrupted (Ctrl-C) in this call")
          .with_peer(peer);
    case Code::kPeerExited:
      if (by != names.rank()) return exited(by, names);
      return Status(Code::kMismatch, "the other ranks are in another call while this one leaves");
    case Code::kTimeout: {
      const std::string late = late_ranks(statuses, names);
      const auto first = std::find_if(statuses.begin(), statuses.end(), is_late);
      const bool one = std::count_if(statuses.begin(), statuses.end(), is_late) == 1;
      std::string text = by == names.rank() ? why.text : rank_name + "gave up: " + why.text;
      text += late.empty() ? "; every rank is in this call, so it is slow rather than late" : "; " + late;
      return Status(Code::kTimeout, text)
          .with_peer(one && first->rank != names.to_world(names.rank()) ? names.from_world(first->rank)
                                                                        : peer);
    }
    default:
      return Status(Code::kAborted,
                    by == names.rank() ? why.text : rank_name + "gave this call up: " + why.text)
          .with_peer(peer);
  }
}

}  // namespace pc
