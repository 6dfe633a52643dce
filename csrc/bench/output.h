// The table, in the columns of nccl-tests, or the same as lines of JSON.
#pragma once

#include <string>

#include "bench/ceilings.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "comm/runtime.h"

namespace pc::bench {

// The columns redop and root.
std::string op_of(const Case& what);
std::string root_of(const Case& what);

std::string table_line(const Row& row);
std::string json_line(const Row& row, Rank size, bool one_clock);
std::string table_line(const Ceiling& ceiling);
std::string json_line(const Ceiling& ceiling);

// To standard output.
Status print_ceilings(const Options& options);

// On standard output of one rank; the others only count.
class Output {
 public:
  Output(const Options& options, bool prints) : options_(options), prints_(prints) {}
  void open(const HostMap& hosts, const World& world);
  Status begin(const Case& what);
  Status add(const Row& row);
  Status close();
  uint64_t wrong() const { return wrong_; }

 private:
  void line(const std::string& text) const;
  Status flush() const;

  const Options& options_;
  const bool prints_;
  Rank size_ = 1;
  bool one_clock_ = false;
  uint64_t wrong_ = 0, rows_ = 0;
  double busbw_ = 0;                      // the sum of those of all rows
  const Operation* operation_ = nullptr;  // of the last heading
  bool in_place_ = true;
};

}  // namespace pc::bench
