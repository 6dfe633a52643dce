// Writes the results to standard output: a table, or its rows as lines of JSON.
#pragma once

#include <string>

#include "bench/roofline.h"
#include "bench/table.h"

namespace pc::bench {

// Only one rank prints; the other ranks only count. The options must outlive the object.
class Output {
 public:
  Output(const Options& options, const RunInfo& run_info, bool prints)
      : options_(options),
        run_info_(run_info),
        prints_(prints) {}
  void open() const { line(table_head(options_, run_info_)); }
  Status begin(const Case& what, const Route& route);
  Status add(const Row& row, const Route& route);
  Status close();
  Status check_results() const;  // fails if any result is wrong, including those of NCCL's own calls

 private:
  void line(const std::string& text) const;
  Status flush() const;

  const Options& options_;
  const RunInfo run_info_;
  const bool prints_;
  uint64_t wrong_ = 0, raw_wrong_ = 0, halves_ = 0;
  double busbw_ = 0;     // sum over all halves
  std::string heading_;  // the heading that was printed last
};

std::string json_line(const Options& options, const RunInfo& run_info, const Row& row, const Route& route);

std::string table_line(const Roofline& roofline);
std::string json_line(const Roofline& roofline);
Status print_roofline(const Options& options);

}  // namespace pc::bench
