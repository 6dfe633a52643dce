// The settings that `pycollective tune` found better than the defaults, for groups of a given
// number of ranks on one host. For other numbers of ranks the defaults apply.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/shm/limits.h"
#include "tuning/selection.h"

namespace pc {

// Returns true if groups of that many ranks can be tuned.
constexpr bool can_tune(Rank ranks) { return ranks >= 2 && ranks <= kMostRanks; }

// Thread-safety: a value.
class Tuning {
 public:
  struct Setting {
    Rank ranks;
    std::string name;   // a shared-memory limit (engine/shm/limits.h), or "tcp"
    std::string value;  // a size, or rows of the selection table for plans over TCP
    bool operator==(const Setting&) const = default;
  };

  // Fails with kInvalidArgument if the name is unknown, the value is not allowed, or the setting
  // exists already.
  Status set(Rank ranks, std::string_view name, std::string_view value);
  Status check() const;  // checks all settings together; call it after the last set()
  const std::vector<Setting>& settings() const { return settings_; }

  const shm::LimitsByRanks& limits() const { return limits_; }
  // Returns `table` with the rows that were measured for groups like `group`.
  SelectionTable selection(const SelectionTable& table, const GroupShape& group) const;

  // One line without blanks, "2:ring=8m|2:tcp=allreduce:0-64k:ring", in the format of parse().
  std::string to_string() const;
  static Result<Tuning> parse(std::string_view text);
  // "ring=8m, most_chunk=256k"; empty if there are no settings for that many ranks
  std::string text_of(Rank ranks) const;

 private:
  std::vector<Setting> settings_;
  shm::LimitsByRanks limits_;
};

}  // namespace pc
