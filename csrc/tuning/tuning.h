// What `pycollective tune` found better than the defaults, for groups of so many ranks on one host. A group whose number of
// ranks was not measured has the defaults.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/shm/limits.h"
#include "tuning/selection.h"

namespace pc {

// Groups of so many ranks can be tuned.
constexpr bool can_tune(Rank ranks) { return ranks >= 2 && ranks <= kMostRanks; }

// Thread-safety: a value.
class Tuning {
 public:
  struct Setting {
    Rank ranks;
    std::string name;   // of a limit of shared memory (engine/shm/limits.h), or "tcp"
    std::string value;  // a size, or rows of the table of algorithms for plans over TCP
    bool operator==(const Setting&) const = default;
  };

  // kInvalidArgument: there is no such thing, it cannot be that, or it has been set already.
  Status set(Rank ranks, std::string_view name, std::string_view value);
  Status check() const;  // when all have been set
  const std::vector<Setting>& settings() const { return settings_; }

  const shm::LimitsByRanks& limits() const { return limits_; }
  // `table` with what was measured for groups of that shape.
  SelectionTable selection(const SelectionTable& table, const GroupShape& group) const;

  // One line without blanks, "2:ring=8m|2:tcp=allreduce:0-64k:ring", that parse() reads.
  std::string to_string() const;
  static Result<Tuning> parse(std::string_view text);
  std::string text_of(Rank ranks) const;  // "ring=8m, most_chunk=256k"; empty: nothing is said of that many

 private:
  std::vector<Setting> settings_;
  shm::LimitsByRanks limits_;
};

}  // namespace pc
