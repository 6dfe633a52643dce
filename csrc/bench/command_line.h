// The command line of the benchmark, with the option names of nccl-tests.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace pc::bench {

Result<Options> parse(const std::vector<std::string>& words);
std::string usage();

}  // namespace pc::bench
