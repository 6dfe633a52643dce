// Selects the algorithm of a call by a table that rank 0 publishes at init. The selection is a pure
// function of what all ranks know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace pc {

// The properties of a group that affect the selection.
struct GroupShape {
  Rank size = 1;
  Rank hosts = 1;  // number of hosts that its ranks are on
  bool operator==(const GroupShape&) const = default;
};

struct Choice {
  const Algorithm* algorithm = nullptr;
  uint32_t split = 1;
  std::size_t row = 0;  // index into the table: the row that matched
};
// Returns the number of pieces of about `chunk_nbytes` (0: not cut) into which `nbytes` are cut.
uint32_t split_for(const Algorithm& algorithm, uint64_t chunk_nbytes, uint64_t nbytes, Rank size);
uint64_t usual_chunk_nbytes(const Algorithm& algorithm);  // chunk size of a row that does not specify one

inline constexpr uint64_t kUnknownSize = ~uint64_t{0};  // value of `nbytes` if not all ranks know the size

// Thread-safety: immutable after construction.
class SelectionTable {
 public:
  static SelectionTable defaults();
  // Puts rows such as "allreduce:0-64k:recursive_doubling;allreduce:64k-inf:ring" before the
  // defaults. Unknown names are InvalidArgument; the error lists the valid ones. Text that
  // to_string() wrote parses to the same table.
  static Result<SelectionTable> parse(std::string_view text);
  // Returns the table with additional rows that were measured on this machine. They follow the rows
  // that the caller requested, and precede the defaults.
  Result<SelectionTable> with_measured(std::string_view text) const;
  bool is_measured(std::size_t row) const { return row >= measured_from_ && row < measured_to_; }
  std::string to_string() const;
  std::string row_text(std::size_t row) const;  // "allreduce:32k-inf:ring:chunk=0"
  struct Call {
    uint64_t nbytes = 0;       // of the whole array
    bool even = true;          // every rank's part of the array has the same size
    bool fixed_order = false;  // only algorithms that sum every element in one fixed order
  };
  // Never returns a null algorithm: the defaults have a row for every collective, and a fixed-order
  // row for each collective that reduces.
  Choice choose(Collective collective, const Call& call, const GroupShape& group) const;
  Choice choose(Collective collective, uint64_t nbytes, const GroupShape& group, bool even = true) const {
    return choose(collective, Call{nbytes, even}, group);
  }

 private:
  struct Row {
    Collective collective;
    uint64_t from_nbytes, to_nbytes;  // [from, to)
    const Algorithm* algorithm;
    // approximate size of the pieces that are forwarded as soon as they arrive; 0: not cut
    uint64_t chunk_nbytes;
    GroupShape from = {};  // smallest number of ranks and of hosts to which the row applies
    bool operator==(const Row&) const = default;
  };
  static Result<Row> parse_row(std::string_view text);
  std::vector<Row> rows_;  // the first row that matches is used
  std::size_t measured_from_ = 0, measured_to_ = 0;
};

}  // namespace pc
