// One rank of the benchmark: joins the others, measures, and on rank 0 prints.
#pragma once

#include "bench/options.h"
#include "bench/role.h"

namespace pc::bench {

// kUnsupported: this cannot be measured here, and why. Wrong results are an error of the rank that prints.
Status run_rank(const Options& options, const Role& role);

}  // namespace pc::bench
