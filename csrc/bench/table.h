// The table: in the host's memory the columns of nccl-tests for one place, and percentiles; on GPUs that of nccl-tests, column
// for column. What has several lines has line feeds between them.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"

namespace pc::bench {

// What is the same in all rows.
struct RunInfo {
  std::vector<Rank> ranks = {};  // of the world, which measure
  std::string hosts = {};        // where they are, for people
  bool one_clock = false;        // all read the same one
  // On GPUs:
  std::string gpu = {};                   // rank 0's: "NVIDIA H100 80GB HBM3"
  std::vector<std::string> devices = {};  // a line of each rank's
  std::string nccl = {}, nccl_from = {};  // "2.28.9", and for people; empty: no call goes there

  Rank size() const { return static_cast<Rank>(ranks.size()); }
};

std::string table_head(const Options& options, const RunInfo& run_info);
// Above the rows of an operation.
std::string heading(const Options& options, const RunInfo& run_info, const Case& what, const Route& route);
// Of one row, and what it is compared with.
std::string table_lines(const Options& options, const Row& row);

// The columns type, redop and root.
std::string type_of(const Case& what);
std::string op_of(const Case& what);
std::string root_of(const Case& what);

}  // namespace pc::bench
