// Which algorithm runs a call: one table that rank 0 publishes at init, a pure function of what all ranks know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace pc {

// What counts about a group besides its calls.
struct GroupShape {
  Rank size = 1;
  Rank hosts = 1;  // on how many its ranks are
  bool operator==(const GroupShape&) const = default;
};

struct Choice {
  const Algorithm* algorithm = nullptr;
  uint32_t split = 1;
  std::size_t row = 0;  // of the table: why it is this one
};
// How many pieces of about that size (0: not cut) `nbytes` are cut into.
uint32_t split_for(const Algorithm& algorithm, uint64_t chunk_nbytes, uint64_t nbytes, Rank size);
uint64_t usual_chunk_nbytes(const Algorithm& algorithm);  // where a row does not say

inline constexpr uint64_t kUnknownSize = ~uint64_t{0};  // as nbytes: not all ranks know it

// Thread-safety: immutable after construction.
class SelectionTable {
 public:
  static SelectionTable defaults();
  // "allreduce:0-64k:recursive_doubling;allreduce:64k-inf:ring" on top of the defaults. Unknown names are InvalidArgument
  // and list what there is. Text that to_string() wrote reads back to the same table.
  static Result<SelectionTable> parse(std::string_view text);
  // The same with rows that nobody asked for, but that were measured on this machine: behind what the caller named and
  // before the defaults.
  Result<SelectionTable> with_measured(std::string_view text) const;
  bool is_measured(std::size_t row) const { return row >= measured_from_ && row < measured_to_; }
  std::string to_string() const;
  std::string row_text(std::size_t row) const;  // "allreduce:32k-inf:ring:chunk=0"
  struct Call {
    uint64_t nbytes = 0;       // of the whole array
    bool even = true;          // every rank's part of it is equally large
    bool fixed_order = false;  // only what sums every element in one order
  };
  // The algorithm is never null: the defaults have a row for every collective, and one of fixed order where it reduces.
  Choice choose(Collective collective, const Call& call, const GroupShape& group) const;
  Choice choose(Collective collective, uint64_t nbytes, const GroupShape& group, bool even = true) const {
    return choose(collective, Call{nbytes, even}, group);
  }

 private:
  struct Row {
    Collective collective;
    uint64_t from_nbytes, to_nbytes;  // [from, to)
    const Algorithm* algorithm;
    uint64_t
        chunk_nbytes;      // pieces that are passed on as soon as they are there: about this size; 0: not cut
    GroupShape from = {};  // rows of larger groups may differ
    bool operator==(const Row&) const = default;
  };
  static Result<Row> parse_row(std::string_view text);
  std::vector<Row> rows_;  // the first that matches wins
  std::size_t measured_from_ = 0, measured_to_ = 0;
};

}  // namespace pc
