#include "tuning/tuning.h"

#include <algorithm>
#include <optional>

#include "base/fields.h"
#include "base/size_text.h"

namespace pc {
namespace {

constexpr std::string_view kTcp = "tcp";

}  // namespace

Status Tuning::set(Rank ranks, std::string_view name, std::string_view value) {
  if (!can_tune(ranks)) {
    return invalid_argument("a group of " + std::to_string(ranks) + " ranks is not tuned: 2 to " +
                            std::to_string(kMostRanks) + " are");
  }
  for (const Setting& each : settings_) {
    if (each.ranks == ranks && each.name == name)
      return invalid_argument(std::string(name) + " is set twice");
  }
  if (name == kTcp) {
    PC_TRY(SelectionTable::defaults().with_measured(value).status());
  } else {
    const std::optional<uint64_t> size = size_from(value);
    if (!size)
      return invalid_argument("'" + std::string(value) + "' is no size, such as 65536, 64k, 1m or inf");
    shm::Limits limits = shm::limits_for(limits_, static_cast<std::size_t>(ranks));
    PC_TRY(shm::set_limit(limits, name, *size));
    limits_[static_cast<std::size_t>(ranks)] = limits;
  }
  settings_.push_back({ranks, std::string(name), std::string(value)});
  return Status::ok();
}

Status Tuning::check() const {
  for (const auto& [ranks, limits] : limits_) {
    const Status status = shm::check(limits);
    if (!status.is_ok())
      return invalid_argument("for " + std::to_string(ranks) + " ranks " + status.message());
  }
  return Status::ok();
}

SelectionTable Tuning::selection(const SelectionTable& table, const GroupShape& group) const {
  if (group.hosts != 1) return table;  // the rows were measured on one host
  for (const Setting& each : settings_) {
    if (each.ranks != group.size || each.name != kTcp) continue;
    const Result<SelectionTable> with = table.with_measured(each.value);
    if (with.is_ok()) return with.value();  // always true: set() has checked the value
  }
  return table;
}

std::string Tuning::to_string() const {
  std::string text;
  for (const Setting& each : settings_)
    text += (text.empty() ? "" : "|") + std::to_string(each.ranks) + ":" + each.name + "=" + each.value;
  return text;
}

Result<Tuning> Tuning::parse(std::string_view text) {
  Tuning tuning;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('|'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const std::size_t colon = part.find(':'), equals = part.find('=');
    Rank ranks = 0;
    if (colon >= equals || equals == std::string_view::npos || !number_from(part.substr(0, colon), ranks))
      return invalid_argument("tuning '" + std::string(part) +
                              "' is not like 2:ring=8m: ranks, what, and its value");
    PC_TRY(tuning.set(ranks, part.substr(colon + 1, equals - colon - 1), part.substr(equals + 1)));
  }
  PC_TRY(tuning.check());
  return tuning;
}

std::string Tuning::text_of(Rank ranks) const {
  std::string text;
  for (const Setting& each : settings_) {
    if (each.ranks == ranks) text += (text.empty() ? "" : ", ") + each.name + "=" + each.value;
  }
  return text;
}

}  // namespace pc
