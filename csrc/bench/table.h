// The table of results. For arrays in host memory it has the columns of nccl-tests once (in place
// or out of place), and percentiles; for arrays on GPUs it has exactly the columns of nccl-tests.
// Texts of several lines are separated by line feeds.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"

namespace pc::bench {

// The properties that all rows share.
struct RunInfo {
  std::vector<Rank> ranks = {};  // the world's ranks that measure
  std::string hosts = {};        // text about where the ranks run
  bool one_clock = false;        // all ranks read the same clock
  // On GPUs:
  std::string gpu = {};                   // rank 0's GPU: "NVIDIA H100 80GB HBM3"
  std::vector<std::string> devices = {};  // one line for each rank's GPU
  std::string nccl = {}, nccl_from = {};  // "2.28.9", and a text about its source; empty: no call uses NCCL

  Rank size() const { return static_cast<Rank>(ranks.size()); }
};

std::string table_head(const Options& options, const RunInfo& run_info);
// Returns the lines above the rows of an operation.
std::string heading(const Options& options, const RunInfo& run_info, const Case& what, const Route& route);
// Returns the line of one row, and the lines of its comparisons.
std::string table_lines(const Options& options, const Row& row);

// Return the text of the columns type, redop and root.
std::string type_of(const Case& what);
std::string op_of(const Case& what);
std::string root_of(const Case& what);

}  // namespace pc::bench
