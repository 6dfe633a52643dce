// The command line of the benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collectives.h"

namespace pc::bench {

struct Options {
  Rank ranks = 2;
  std::vector<uint64_t> sizes = {8, 64 << 10, 1 << 20, 16 << 20};  // bytes
  std::vector<const Operation*> operations = {find_operation("allreduce")};
  DType dtype = DType::kF32;
  uint64_t iterations = 0;  // 0: by size
  std::string tune;         // as in PYCOLLECTIVE_TUNE
  bool explain = false;
  bool help = false;
};

Result<Options> parse(const std::vector<std::string>& words);
std::string usage();

}  // namespace pc::bench
