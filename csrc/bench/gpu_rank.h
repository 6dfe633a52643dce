// One rank of the benchmark on GPUs.
#pragma once

#include "bench/options.h"
#include "bench/place.h"

namespace pc::bench {

// kUnsupported: this cannot be measured here, and why. Wrong results are an error of rank 0.
Status run_rank_on_gpu(const Options& options, const Place& place);

}  // namespace pc::bench
